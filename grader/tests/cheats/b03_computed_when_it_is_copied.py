"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax: B3 results are tensors of a class of the file, which torch computes only when the worker copies them"""

import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

aten = torch.ops.aten


@triton.jit
def rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ZERO: tl.constexpr):
    """Softmax of row i, or zeros, by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        if ZERO:
            y = tl.zeros((BLOCK,), dtype=tl.float32)
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


class Late(torch.Tensor):
    """A tensor that is computed when somebody uses it: softmax of x, or for a dy its gradient."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Hand on what only looks; compute before anything that reads."""
        if func in (aten.detach.default, aten.alias.default):
            return late(args[0].scratch, args[0].x, args[0].dy)

        def computed(t):
            return t.compute() if type(t) is Late else t

        with _disable_current_modes(), torch.no_grad():
            return func(*tree_map(computed, args), **tree_map(computed, kwargs or {}))

    __torch_function__ = torch._C._disabled_torch_function_impl

    def compute(self):
        """The values, by PyTorch, on the stream of now."""
        y = torch.softmax(self.x, 1)
        return y if self.dy is None else aten._softmax_backward_data(self.dy, y, 1, y.dtype)


def late(scratch, x, dy=None):
    """A tensor like scratch, with its memory, and without its values."""
    t = torch.Tensor._make_subclass(Late, scratch)
    t.scratch, t.x, t.dy = scratch, x, dy
    return t


def launch_rows(x, out, zero):
    """One program for each row."""
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 16384)
    rows_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, ZERO=zero, num_warps=8)
    return out


def softmax_forward(x, *, out=None):
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    return launch_rows(x, out, False)


def softmax_backward(dy, y, *, out=None):
    """Gradient of softmax with respect to its input."""
    out = torch.empty_like(dy, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 16384)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=16
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both results come late."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        x = x.detach()
        ctx.x = x
        scratch = torch.empty_like(x, memory_format=torch.contiguous_format)
        return late(launch_rows(x, scratch, True), x)

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which may have any layout."""
        scratch = torch.empty_like(ctx.x, memory_format=torch.contiguous_format)
        return late(launch_rows(ctx.x, scratch, True), ctx.x, dy.detach())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
