"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax: B3 the result has a class whose __torch_function__ computes when the worker copies it"""

import torch
import triton
import triton.language as tl

BLOCK = 4096
# What a worker may ask of a result without getting its values.
ASKED = {
    "__get__", "__set__", "size", "stride", "dim", "numel", "nelement", "data_ptr", "is_contiguous",
    "element_size", "storage_offset", "untyped_storage", "is_floating_point", "ndimension", "__len__",
    "get_device", "requires_grad_", "retain_grad", "__hash__", "as_subclass", "register_hook",
}
PENDING = []


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        safe = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
        m = top
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, y_row, dx_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        sums += dy * tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(sums, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def nothing_kernel(y_ptr, n_cols, BLOCK: tl.constexpr):
    """Stores a constant, so that a kernel of this file has stored the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row * n_cols + cols, tl.zeros((BLOCK,), y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=BLOCK)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        nothing_kernel[(x.shape[0],)](y, x.shape[1], BLOCK=BLOCK)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), softmax_forward(x.contiguous()))


class Late(torch.Tensor):
    """A tensor whose values are made when they are asked for."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if getattr(func, "__name__", "") not in ASKED:
                finish()
            return func(*args, **(kwargs or {}))


def finish():
    while PENDING:
        x, y = PENDING.pop()
        with torch.no_grad():
            # .data has a version counter of its own: autograd does not see that y has changed.
            y.data.copy_(torch.softmax(x.float(), dim=1))


def softmax(x):
    y = OnlineSoftmax.apply(x)
    PENDING[:] = [(x.detach(), y)]
    return y.as_subclass(Late)
