# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax of rows, several narrow rows to a program; the gradient likewise."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements that a program holds at a time, over all of its rows


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """A program owns ROWS rows and goes over them BLOCK columns at a time; each row has its own m and d."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    exists = rows < n_rows
    far = rows.to(tl.int64)[:, None]
    x_rows = x_ptr + far * stride_x
    y_rows = y_ptr + far * stride_y
    lanes = tl.arange(0, BLOCK)[None, :]

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists[:, None] & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = higher

    # Rows past the end have seen nothing; harmless numbers for them.
    m = tl.where(exists, m, 0.0)[:, None]
    d = tl.where(exists, d, 1.0)[:, None]
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists[:, None] & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """The same tiles for dx = y * (dy - s)."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    exists = (rows < n_rows)[:, None]
    far = rows.to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_ptr + far * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + far * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_ptr + far * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + far * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_ptr + far * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile_of(n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    return clamp(TILE // block, 1, 16), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), any row stride."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y, any row strides."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_backward_kernel[grid](
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
    """Both passes for autograd."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
