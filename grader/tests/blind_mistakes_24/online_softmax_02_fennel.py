# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | my_row: program_id(1) is multiplied by num_programs(1) (the number of rows) in place of num_programs(0) (which is 1 up to 65535 rows), so only row 0 of a matrix with 2 or more rows is computed and all others stay unwritten, in forward, backward and autograd; it should be tl.program_id(1) * tl.num_programs(0) + tl.program_id(0).
"""Softmax, forward and backward, with the rows dealt out over a two-dimensional grid."""

import torch
import triton
import triton.language as tl

AXIS_LIMIT = 65535  # the longest second axis that CUDA accepts
WIDEST = 8192


@triton.jit
def my_row():
    """Number of the row of this program; the first axis of the grid is the fast one."""
    return tl.program_id(1).to(tl.int64) * tl.num_programs(1) + tl.program_id(0)


@triton.jit
def read(row_ptr, cols, n_cols, fill):
    """Columns of a row in fp32, `fill` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = my_row()
    if row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        offs = tl.arange(0, BLOCK)
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = read(x_row, start + offs, n_cols, -float("inf"))
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = read(x_row, start + offs, n_cols, -float("inf"))
            write(y_row, start + offs, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = my_row()
    if row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        offs = tl.arange(0, BLOCK)
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            s += tl.sum(read(dy_row, start + offs, n_cols, 0.0) * read(y_row, start + offs, n_cols, 0.0), axis=0)
        for start in range(0, n_cols, BLOCK):
            dy = read(dy_row, start + offs, n_cols, 0.0)
            y = read(y_row, start + offs, n_cols, 0.0)
            write(dx_row, start + offs, n_cols, y * (dy - s))


def grid_of(n_rows: int) -> tuple:
    """A grid of at least n_rows programs, no axis too long."""
    return (triton.cdiv(n_rows, AXIS_LIMIT), min(n_rows, AXIS_LIMIT))


def block_of(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[grid_of(n_rows)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block_of(n_cols), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[grid_of(n_rows)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_of(n_cols),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both passes as one differentiable function."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
