# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: tiles of two dimensions with several rows, a pair (m, d) for each element of the tile, the recurrence as the combine function of tl.reduce over a tuple; rows past the end are read as the last row and not stored; also tl.reduce with an own function in the backward pass.
"""Online softmax as a reduction of pairs (m, d): the recurrence is the function that joins two of them.

A program has a tile of several rows, one below the other, and goes through their columns together. Each
element of the tile has a pair of its own, until the pairs of a row are reduced to one.
"""

import torch
import triton
import triton.language as tl

TILE = 2048  # elements of a tile
WIDTH = 512  # columns of a tile, at most
HEIGHT = 8  # rows of a tile, at most


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """The pair of two sets of numbers together; a pair (-inf, anything) is that of no numbers."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def plus(a, b):
    """The sum of two numbers."""
    return a + b


@triton.jit
def rows_of_tile(n_rows, ROWS: tl.constexpr):
    """Row numbers of this program in int64, (ROWS, 1), where the last row stands in for those past the end,
    and which of them are its own."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    return tl.minimum(rows, n_rows - 1).to(tl.int64)[:, None], (rows < n_rows)[:, None]


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr):
    """y = softmax(x) for ROWS rows."""
    rows, own = rows_of_tile(n_rows, ROWS)
    cols = tl.arange(0, COLS)[None, :]
    x_tile = x_ptr + rows * stride_x + cols
    y_tile = y_ptr + rows * stride_y + cols
    m = tl.full((ROWS, COLS), -float("inf"), tl.float32)
    d = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        x = tl.load(x_tile + start, mask=cols + start < n_cols, other=-float("inf")).to(tl.float32)
        m, d = join(m, d, x, 1.0)
    top, total = tl.reduce((m, d), 1, join)
    for start in range(0, n_cols, COLS):
        inside = cols + start < n_cols
        x = tl.load(x_tile + start, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=own & inside)


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
    COLS: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) for ROWS rows."""
    rows, own = rows_of_tile(n_rows, ROWS)
    cols = tl.arange(0, COLS)[None, :]
    dy_tile = dy_ptr + rows * stride_dy + cols
    y_tile = y_ptr + rows * stride_y + cols
    dx_tile = dx_ptr + rows * stride_dx + cols
    products = tl.full((ROWS, COLS), 0.0, tl.float32)
    for start in range(0, n_cols, COLS):
        inside = cols + start < n_cols
        dy = tl.load(dy_tile + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.reduce(products, 1, plus)
    for start in range(0, n_cols, COLS):
        inside = cols + start < n_cols
        dy = tl.load(dy_tile + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_tile + start, dx.to(dx_ptr.dtype.element_ty), mask=own & inside)


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile for rows of n_cols columns, both powers of two."""
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    return min(TILE // width, HEIGHT), width


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x, (n_rows, n_cols); rows of x and out may be any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    height, width = tile_of(n_cols)
    forward_kernel[(triton.cdiv(n_rows, height),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=height, COLS=width, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the input, from that of the result, dy, and the result, y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    height, width = tile_of(n_cols)
    backward_kernel[(triton.cdiv(n_rows, height),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=height,
        COLS=width,
        num_warps=4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both as one differentiable function."""

    @staticmethod
    def forward(ctx, x):
        """The result of x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """The gradient of x."""
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
