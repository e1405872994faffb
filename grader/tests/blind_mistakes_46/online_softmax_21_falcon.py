# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: where there are fewer than 264 rows of more than 8192 columns, up to 64 programs a row compute partial maxima and sums into scratch tensors, and a second launch joins these and normalises; other rows have one program each. Loops are in helper functions with begin and end.
"""Softmax over rows: a few long rows are split among many programs, in two launches. Gradient and autograd function."""

import torch
import triton
import triton.language as tl

BLOCK = 8192
PIECES = 64  # at most so many pieces of a row
BUSY = 264  # with so many rows, a program for each of them is enough


@triton.jit
def fold(x_row, begin, end, WIDTH: tl.constexpr):
    """Maximum m of the columns from begin to end of a row, and the sum of exp(x - m); -inf and 0 if all are -inf."""
    m = -float("inf")
    d = 0.0
    for start in range(begin, end, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def normalise(x_row, y_row, m, d, begin, end, WIDTH: tl.constexpr):
    """Store the result of the columns from begin to end."""
    for start in range(begin, end, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_row.dtype.element_ty), mask=cols < end, eviction_policy="evict_first")


@triton.jit
def whole_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    """Softmax of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    m, d = fold(x_row, 0, n_cols, WIDTH)
    normalise(x_row, y_ptr + row * stride_y, m, d, 0, n_cols, WIDTH)


@triton.jit
def pieces_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, span, WIDTH: tl.constexpr):
    """m and d of piece j of row i, relative to the maximum of the piece; program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    piece = tl.program_id(axis=1).to(tl.int64)
    begin = piece * span
    m, d = fold(x_ptr + row * stride_x, begin, tl.minimum(begin + span, n_cols), WIDTH)
    slot = row * tl.num_programs(axis=1) + piece
    tl.store(m_ptr + slot, m)
    tl.store(d_ptr + slot, d)


@triton.jit
def join_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, span, WIDTH: tl.constexpr, SLOTS: tl.constexpr
):
    """The result of piece j of row i, from m and d of all pieces of the row; program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    piece = tl.program_id(axis=1).to(tl.int64)
    pieces = tl.num_programs(axis=1)
    slots = tl.arange(0, SLOTS)
    m_all = tl.load(m_ptr + row * pieces + slots, mask=slots < pieces, other=-float("inf"))
    d_all = tl.load(d_ptr + row * pieces + slots, mask=slots < pieces, other=0.0)
    m = tl.max(m_all, axis=0)  # finite, as the row has a finite value
    d = tl.sum(d_all * tl.exp(m_all - m), axis=0)
    begin = piece * span
    end = tl.minimum(begin + span, n_cols)
    normalise(x_ptr + row * stride_x, y_ptr + row * stride_y, m, d, begin, end, WIDTH)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    width = min(triton.next_power_of_2(n_cols), BLOCK)
    warps = min(max(width // 1024, 1), 4)
    blocks = triton.cdiv(n_cols, width)
    if blocks == 1 or n_rows >= BUSY:
        whole_rows_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=warps
        )
        return out
    # A piece is a number of whole blocks, and none is empty.
    span = triton.cdiv(blocks, PIECES) * width
    pieces = triton.cdiv(n_cols, span)
    m = torch.empty((n_rows, pieces), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, pieces), dtype=torch.float32, device=x.device)
    pieces_kernel[(n_rows, pieces)](x, m, d, n_cols, x.stride(0), span, WIDTH=width, num_warps=warps)
    join_kernel[(n_rows, pieces)](
        x, out, m, d, n_cols, x.stride(0), out.stride(0), span,
        WIDTH=width, SLOTS=triton.next_power_of_2(pieces), num_warps=warps,
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    width = min(triton.next_power_of_2(n_cols), BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        WIDTH=width, num_warps=min(max(width // 512, 4), 16),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
