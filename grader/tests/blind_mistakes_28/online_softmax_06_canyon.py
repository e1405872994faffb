# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient by a fixed number of programs, which share the rows among them."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2112  # sixteen for each SM of an H200
BLOCK_MAX = 8192
FLOOR = tl.constexpr(-3.4e38)  # below every finite value, and finite itself


@triton.jit
def logits(row_ptr, cols, n_cols):
    """fp32 values of one block; -inf past the end of the row."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def factors(row_ptr, cols, n_cols):
    """fp32 values of one block; 0 past the end of the row."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        best = FLOOR
        weight = 0.0
        for start in range(0, n_cols, BLOCK):
            x = logits(x_row, start + lanes, n_cols)
            better = tl.maximum(best, tl.max(x, axis=0))
            weight = weight * tl.exp(best - better) + tl.sum(tl.exp(x - better), axis=0)
            best = better
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            y = tl.exp(logits(x_row, cols, n_cols) - best) / weight
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            s += tl.sum(factors(dy_row, start + lanes, n_cols) * factors(y_row, start + lanes, n_cols), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dx = factors(y_row, cols, n_cols) * (factors(dy_row, cols, n_cols) - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def block_and_warps(n_cols: int, columns_a_warp: int):
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    return block, min(max(block // columns_a_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, 1024)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, 512)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
