# labs/lab2_online_softmax/online_softmax.py | error | In `backward_kernel`, `tl.sum(fetch(dy_tile) * fetch(y_tile), axis=1, keepdim=True)` uses a keyword that does not exist: it is `keep_dims=True`. The kernel does not compile (TypeError), in all cases of softmax_backward and of the gradient of softmax; softmax_forward is right.
"""Softmax over rows and its gradient with block pointers; a program has several narrow rows."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of a tile, rows times columns
MOST_ROWS = 16  # rows of a tile of narrow rows


@triton.jit
def tile_at(ptr, n_rows, n_cols, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Block pointer to the first columns of the rows of this program."""
    return tl.make_block_ptr(
        base=ptr,
        shape=(n_rows, n_cols),
        strides=(stride, 1),
        offsets=(tl.program_id(axis=0) * ROWS, 0),
        block_shape=(ROWS, BLOCK),
        order=(1, 0),
    )


@triton.jit
def fetch(tile):
    """A tile in fp32, 0 outside of the matrix."""
    return tl.load(tile, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)[None, :]
    x_tile = tile_at(x_ptr, n_rows, n_cols, stride_x, ROWS, BLOCK)
    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    d = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.where(start + lanes < n_cols, fetch(x_tile), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1)[:, None])
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1)[:, None]
        m = m_new
        x_tile = tl.advance(x_tile, (0, BLOCK))

    x_tile = tile_at(x_ptr, n_rows, n_cols, stride_x, ROWS, BLOCK)
    y_tile = tile_at(y_ptr, n_rows, n_cols, stride_y, ROWS, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        y = tl.exp(fetch(x_tile) - m) / d
        tl.store(y_tile, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))
        x_tile = tl.advance(x_tile, (0, BLOCK))
        y_tile = tl.advance(y_tile, (0, BLOCK))


@triton.jit
def backward_kernel(
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
    dy_tile = tile_at(dy_ptr, n_rows, n_cols, stride_dy, ROWS, BLOCK)
    y_tile = tile_at(y_ptr, n_rows, n_cols, stride_y, ROWS, BLOCK)
    s = tl.zeros((ROWS, 1), tl.float32)
    for _ in range(0, n_cols, BLOCK):
        s += tl.sum(fetch(dy_tile) * fetch(y_tile), axis=1, keepdim=True)
        dy_tile = tl.advance(dy_tile, (0, BLOCK))
        y_tile = tl.advance(y_tile, (0, BLOCK))

    dy_tile = tile_at(dy_ptr, n_rows, n_cols, stride_dy, ROWS, BLOCK)
    y_tile = tile_at(y_ptr, n_rows, n_cols, stride_y, ROWS, BLOCK)
    dx_tile = tile_at(dx_ptr, n_rows, n_cols, stride_dx, ROWS, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dx = fetch(y_tile) * (fetch(dy_tile) - s)
        tl.store(dx_tile, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0, 1))
        dy_tile = tl.advance(dy_tile, (0, BLOCK))
        y_tile = tl.advance(y_tile, (0, BLOCK))
        dx_tile = tl.advance(dx_tile, (0, BLOCK))


def tile_of(n_cols: int):
    """Rows and columns of a tile."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // block, MOST_ROWS), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols)
    forward_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols)
    backward_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=16,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
