# labs/lab2_online_softmax/online_softmax.py | corner | Lanes past the end are loaded as LOWEST = -65504.0 in `fetch`; it must be -inf. Rows whose maximum is about -65504 or below (fp16 at its lowest, fp32 and bf16 far below 0) get these lanes as their maximum or into d, and y is too small or 0; shows only there, and only where n_cols is no multiple of the block.
"""Softmax, forward and backward; rows that fit one block stay in registers."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
LOWEST = tl.constexpr(-65504.0)


@triton.jit
def fetch(row_ptr, cols, n_cols):
    """Columns of a row in fp32, with the lowest number past the end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=LOWEST).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, FITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    if FITS:
        x = fetch(x_row, lane, n_cols)
        e = tl.exp(x - tl.max(x, axis=0))
        put(y_row, lane, n_cols, e / tl.sum(e, axis=0))
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lane, n_cols)
            above = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(above == -float("inf"), 0.0, above)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = above
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lane, n_cols)
            put(y_row, start + lane, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row, y_row, dx_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        g = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        g = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        put(dx_row, cols, n_cols, y * (g - s))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.size(), dtype=x.dtype, device=x.device)
    width = x.size(1)
    block = min(triton.next_power_of_2(width), WIDEST)
    online_softmax_kernel[(x.size(0),)](
        x, out, width, x.stride(0), out.stride(0), BLOCK=block, FITS=width <= block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.size(), dtype=y.dtype, device=y.device)
    width = y.size(1)
    block = min(triton.next_power_of_2(width), WIDEST)
    softmax_backward_kernel[(y.size(0),)](
        dy, y, out, width, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
