# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel, `rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)` stays int32 and is multiplied by stride_x and stride_y, so offsets beyond 2^31 elements wrap around; rows should be converted with .to(tl.int64) before, as the backward kernel does.
"""Softmax over rows, forward and backward.

Layout of the work: a program owns a few rows at once, as a (ROWS, BLOCK) tile. Narrow matrices otherwise
have programs with almost nothing to do. The number of rows shrinks as the rows become longer.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
TILE = 8192  # elements of one tile, at most


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    x_base = x_ptr + (rows * stride_x)[:, None]
    y_base = y_ptr + (rows * stride_y)[:, None]
    running_max = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    running_sum = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        keep = row_ok & (cols < n_cols)
        x = tl.load(x_base + cols, mask=keep, other=-float("inf")).to(tl.float32)
        block_max = tl.max(x, axis=1, keep_dims=True)
        new_max = tl.maximum(running_max, block_max)
        pivot = tl.where(new_max == -float("inf"), 0.0, new_max)
        alpha = tl.exp(running_max - pivot)
        running_sum = running_sum * alpha + tl.sum(tl.exp(x - pivot), axis=1, keep_dims=True)
        running_max = new_max
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        keep = row_ok & (cols < n_cols)
        x = tl.load(x_base + cols, mask=keep, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(y_base + cols, y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row_ok = (rows < n_rows)[:, None]
    dy_base = dy_ptr + (rows * stride_dy)[:, None]
    y_base = y_ptr + (rows * stride_y)[:, None]
    dx_base = dx_ptr + (rows * stride_dx)[:, None]
    dots = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        keep = row_ok & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_base + cols, mask=keep, other=0.0).to(tl.float32)
        dots += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        keep = row_ok & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_base + cols, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - dots)
        tl.store(dx_base + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def tile_of(n_cols: int, widest: int):
    """Rows and columns of a tile."""
    block = min(triton.next_power_of_2(n_cols), widest)
    rows = min(max(TILE // block, 1), 8)
    return rows, block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=8,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
