# labs/lab2_online_softmax/online_softmax.py | error | In softmax_tiles_kernel (forward), first loop, `tl.sum(p, axis=1)` lacks keep_dims=True: it has shape [ROWS] = [4], d has shape [4, 1], and their sum becomes [4, 4]. Triton does not compile it, because the type of the loop-carried d changes; in the interpreter `e / d` of the second loop fails, as [4, COLS] and [4, 4] do not fit. Shows in every case of softmax_forward and softmax. It should be `tl.sum(p, axis=1, keep_dims=True)`.
"""Online softmax on tiles of four rows, its gradient on the same tiles, and an autograd function."""

import torch
import triton
import triton.language as tl

ROWS = 4
FORWARD_COLS = 2048
BACKWARD_COLS = 1024


@triton.jit
def softmax_tiles_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows. m and d are columns of one value for each of them."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    m = tl.full([ROWS, 1], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS, 1], dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(x - shift)
        d = d * tl.exp(m - shift) + tl.sum(p, axis=1)
        m = m_new

    shift = tl.where(m == -float("inf"), 0.0, m)  # rows past the last one
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - shift)
        tl.store(y_rows + cols, (e / d).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_tiles_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS rows. Products are collected in a whole tile, and summed once."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    products = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1, keep_dims=True)

    for start in range(0, n_cols, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_rows + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def tile_cols(n_cols: int, widest: int) -> int:
    """Columns of a tile: a power of two from 16 to `widest`."""
    return min(max(triton.next_power_of_2(n_cols), 16), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_tiles_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        COLS=tile_cols(n_cols, FORWARD_COLS),
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=dy.dtype, device=dy.device)
    grid = (triton.cdiv(n_rows, ROWS),)
    gradient_tiles_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        COLS=tile_cols(n_cols, BACKWARD_COLS),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, and softmax_backward as its gradient."""

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
