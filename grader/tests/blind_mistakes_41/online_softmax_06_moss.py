# labs/lab2_online_softmax/online_softmax.py | corner | Exercise softmax (its gradient only), `rows_apart`, called in `OnlineSoftmax.backward`: `if t.stride(0) >= t.size(1): return t` takes a row stride of at least n_cols as a proof that columns are contiguous; it should ask for `t.stride(1) == 1` (or always take `t.contiguous()`). Shows for a dy with a column stride other than 1 and a large row stride, such as every second column of a wider matrix; expanded from one number, transposed, padded and contiguous dy are right.
"""Online softmax and its gradient on two-dimensional tiles: a program has a few rows side by side."""

import torch
import triton
import triton.language as tl

WIDEST = 8192  # columns of a tile
ELEMENTS = 4096  # a tile of several rows has at most this many


@triton.jit
def rows_of_program(n_rows, ROWS: tl.constexpr):
    """The rows of a tile as a column of int64 numbers, and which of them exist."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    return rows, rows < n_rows


@triton.jit
def softmax_tile_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows, exists = rows_of_program(n_rows, ROWS)
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=exists & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # A row that does not exist has seen no number. Any finite values do for it: it is not stored.
    empty = m == -float("inf")
    m = tl.where(empty, 0.0, m)
    d = tl.where(empty, 1.0, d)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_tile_kernel(
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
    rows, exists = rows_of_program(n_rows, ROWS)
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def tile(n_cols: int) -> tuple:
    """Rows and columns of a tile, and warps."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = min(max(ELEMENTS // block, 1), 16)
    warps = min(max(rows * block // 512, 1), 16)
    return rows, block, warps


def rows_apart(t: torch.Tensor) -> torch.Tensor:
    """t itself where its rows lie one behind another, so that a row stride describes it; else a copy."""
    if t.stride(0) >= t.size(1):
        return t
    return t.contiguous()


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, block, warps = tile(n_cols)
    softmax_tile_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    rows, block, warps = tile(n_cols)
    gradient_tile_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=warps,
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
        return softmax_backward(rows_apart(dy), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
