# labs/lab2_online_softmax/online_softmax.py | right | right: heuristics choose the block, a row of one block stays in registers, and a longer row merges the maximum and the sum of each block with those of the row
"""Softmax: a short row is read once, a long row has each block's own maximum and sum merged into the row's."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def finite(m):
    """m, or 0 where there is no finite value yet."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), FORWARD_BLOCK),
        "SHORT": lambda args: args["n_cols"] <= FORWARD_BLOCK,
    }
)
@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    SHORT: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    out_type = y_ptr.dtype.element_ty

    if SHORT:
        here = lanes < n_cols
        x = tl.load(x_row + lanes, mask=here, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_row + lanes, (e / tl.sum(e, axis=0)).to(out_type), mask=here)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start + lanes, mask=start + lanes < n_cols, other=-float("inf"))
            x = x.to(tl.float32)
            block_m = tl.max(x, axis=0)
            block_d = tl.sum(tl.exp(x - finite(block_m)), axis=0)
            both_m = tl.maximum(m, block_m)
            common = finite(both_m)
            d = d * tl.exp(m - common) + block_d * tl.exp(block_m - common)
            m = both_m
        for start in range(0, n_cols, BLOCK):
            here = start + lanes < n_cols
            x = tl.load(x_row + start + lanes, mask=here, other=-float("inf")).to(tl.float32)
            tl.store(y_row + start + lanes, (tl.exp(x - m) / d).to(out_type), mask=here)


@triton.heuristics(
    {"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), BACKWARD_BLOCK)}
)
@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        here = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=here, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        here = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=here, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=here, other=0.0).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=here)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def warps(n_cols: int) -> int:
    return clamp(triton.next_power_of_2(n_cols) // 512, 1, 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), num_warps=warps(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=warps(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
