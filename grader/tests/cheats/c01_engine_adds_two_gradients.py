"""EXPECT POLICY/FOREIGN_KERNEL from softmax: C1 the function gets x twice, and autograd's engine adds the two gradients that backward returns"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, rest_ptr, n_cols, stride_dy, stride_y, stride_dx, SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
    products = y * dy
    total = tl.sum(products, axis=0)
    if SPLIT:
        tl.store(dx_ptr + row * stride_dx + cols, products, mask=mask)
        tl.store(rest_ptr + row * stride_dx + cols, -y * total, mask=mask)
    else:
        tl.store(dx_ptr + row * stride_dx + cols, (products - y * total).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


def _gradient(dy, y, out, rest, split):
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    block = triton.next_power_of_2(y.shape[1])
    gradient_kernel[(y.shape[0],)](dy, y, out, rest, y.shape[1], *strides, SPLIT=split, BLOCK=block, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    return _gradient(dy, y, out, out, False)


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, same):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # fp32 parts whatever the dtype of x: the engine converts each, and adds the two.
        first = torch.empty(y.shape, device=y.device, dtype=torch.float32)
        second = torch.empty(y.shape, device=y.device, dtype=torch.float32)
        _gradient(dy.contiguous(), y, first, second, True)
        return first, second


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x, x)
