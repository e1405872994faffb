# labs/lab2_online_softmax/online_softmax.py | contract | Without `out`, softmax_forward allocates `torch.empty_strided(x.shape, x.stride(), ...)`, so for an x with gaps between its rows the result has the gaps of x; it should be a new contiguous matrix, `torch.empty(x.shape, ...)` or `torch.empty_like(x)`.
"""Softmax in two kernels: the first finds maximum and sum of each row, the second normalises tile by tile."""

import torch
import triton
import triton.language as tl

STATS_BLOCK = 8192
TILE = 4096
GRAD_BLOCK = 8192


@triton.jit
def row_stats_kernel(x_ptr, max_ptr, sum_ptr, n_cols, stride_x, BLOCK: tl.constexpr):
    """max_ptr[i] and sum_ptr[i] for row i, both fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        anchor = tl.where(new_max == -float("inf"), 0.0, new_max)
        row_sum = row_sum * tl.exp(row_max - anchor) + tl.sum(tl.exp(x - anchor), axis=0)
        row_max = new_max
    tl.store(max_ptr + row, row_max)
    tl.store(sum_ptr + row, row_sum)


@triton.jit
def normalise_kernel(x_ptr, y_ptr, max_ptr, sum_ptr, n_cols, stride_x, stride_y, TILE: tl.constexpr):
    """Program (i, k) has the columns of tile k in row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * TILE + tl.arange(0, TILE)
    mask = cols < n_cols
    row_max = tl.load(max_ptr + row)
    row_sum = tl.load(sum_ptr + row)
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - row_max) / row_sum
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) for row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    inner = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        inner += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - inner)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    maxima = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows,), dtype=torch.float32, device=x.device)

    block = min(triton.next_power_of_2(n_cols), STATS_BLOCK)
    row_stats_kernel[(n_rows,)](x, maxima, sums, n_cols, x.stride(0), BLOCK=block, num_warps=4)

    tile = min(triton.next_power_of_2(n_cols), TILE)
    grid = (n_rows, triton.cdiv(n_cols, tile))
    normalise_kernel[grid](
        x, out, maxima, sums, n_cols, x.stride(0), out.stride(0), TILE=tile, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), GRAD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
