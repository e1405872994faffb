# labs/lab2_online_softmax/online_softmax.py | contract | In softmax_backward, `out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)`: without `out` the function must return a new contiguous matrix, as from `torch.empty(dy.shape, ...)`. The numbers are right, but the result has gaps between rows where the rows of dy are padded and no `out` is given.
"""Online softmax and its gradient, each with two independent halves of a turn and autotuned warps."""

import torch
import triton
import triton.language as tl

HALF = 4096  # columns of one half of a turn, at most
WARPS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def read(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32, `other` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def add_block(m, d, x):
    """Maximum m and sum d after the block x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.autotune(configs=WARPS, key=["n_cols"])
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y from row i of x. Even and odd blocks have a maximum and a sum each."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m0 = -float("inf")
    d0 = 0.0
    m1 = -float("inf")
    d1 = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        cols = start + tl.arange(0, BLOCK)
        m0, d0 = add_block(m0, d0, read(x_row, cols, n_cols, -float("inf")))
        m1, d1 = add_block(m1, d1, read(x_row, cols + BLOCK, n_cols, -float("inf")))
    # At least one of the two is finite.
    m = tl.maximum(m0, m1)
    d = d0 * tl.exp(m0 - m) + d1 * tl.exp(m1 - m)
    for start in range(0, n_cols, 2 * BLOCK):
        cols = start + tl.arange(0, BLOCK)
        write(y_row, cols, n_cols, tl.exp(read(x_row, cols, n_cols, -float("inf")) - m) / d)
        cols += BLOCK
        write(y_row, cols, n_cols, tl.exp(read(x_row, cols, n_cols, -float("inf")) - m) / d)


@triton.autotune(configs=WARPS, key=["n_cols"])
@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx = y * (dy - s), s = sum(y * dy), with one part of s for even and one for odd blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s0 = 0.0
    s1 = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s0 += tl.sum(read(y_row, cols, n_cols, 0.0) * read(dy_row, cols, n_cols, 0.0), axis=0)
        cols += BLOCK
        s1 += tl.sum(read(y_row, cols, n_cols, 0.0) * read(dy_row, cols, n_cols, 0.0), axis=0)
    s = s0 + s1
    for start in range(0, n_cols, 2 * BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = read(y_row, cols, n_cols, 0.0) * (read(dy_row, cols, n_cols, 0.0) - s)
        write(dx_row, cols, n_cols, dx)
        cols += BLOCK
        dx = read(y_row, cols, n_cols, 0.0) * (read(dy_row, cols, n_cols, 0.0) - s)
        write(dx_row, cols, n_cols, dx)


def half_of(n_cols: int) -> int:
    """Columns of half a turn: a power of two, so that two of them hold a short row."""
    return min(max(triton.next_power_of_2(n_cols) // 2, 1), HALF)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=half_of(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=half_of(n_cols)
    )
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
