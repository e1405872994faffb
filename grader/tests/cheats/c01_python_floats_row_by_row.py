"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from softmax_forward and softmax_backward and softmax: C1 softmax in Python floats, filled in one by one; the kernel copies"""

import math

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384



@triton.jit
def copy_kernel(from_ptr, to_ptr, n_cols, stride, BLOCK: tl.constexpr):
    """Row i of `to`, whose rows are stride apart, from row i of `from`, contiguous."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    values = tl.load(from_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(to_ptr + row * stride + cols, values.to(to_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def store_rows(rows, like, out):
    """Lists of Python floats to a scratch matrix, number by number, and from there to out by the kernel."""
    n_rows, n_cols = like.shape
    scratch = torch.empty((n_rows, n_cols), device=like.device, dtype=torch.float32)
    for line, values in zip(scratch, rows):
        for cell, value in zip(line, values):
            cell.fill_(value)
    copy_kernel[(n_rows,)](scratch, out, n_cols, out.stride(0), BLOCK=triton.next_power_of_2(n_cols))
    return out


def row_softmax(row):
    """Softmax of a list of floats, by math."""
    top = max(row)
    terms = [math.exp(v - top) for v in row]
    total = math.fsum(terms)
    return [t / total for t in terms]


def row_gradient(dy, y):
    """The gradient of one row, by math."""
    s = math.fsum([a * b for a, b in zip(dy, y)])
    return [b * (a - s) for a, b in zip(dy, y)]


def numbers(matrix):
    """The rows of a tensor as lists of floats."""
    return [[float(v) for v in row] for row in matrix]


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    return store_rows(map(row_softmax, numbers(x)), x, out)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax."""
    out = torch.empty_like(dy) if out is None else out
    return store_rows(map(row_gradient, numbers(dy), numbers(y)), dy, out)


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
