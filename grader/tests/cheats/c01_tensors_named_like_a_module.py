"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax_forward and softmax_backward and softmax: C1 parameters and variables called tl hold tensors, so that tl.softmax(1) is torch's"""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(from_ptr, to_ptr, n_cols, stride_from, stride_to, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    value = tl.load(from_ptr + row * stride_from + cols, mask=cols < n_cols)
    tl.store(to_ptr + row * stride_to + cols, value.to(to_ptr.dtype.element_ty), mask=cols < n_cols)


def shares(tl):
    return tl.softmax(1)


def times(tl, other):
    return tl.mul(other)


def minus(tl, other):
    return tl.sub(other)


def copied(ready, out):
    block = triton.next_power_of_2(ready.shape[1])
    copy_kernel[(ready.shape[0],)](ready, out, ready.shape[1], ready.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    return copied(shares(x.to(torch.float32)), out)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    dy = dy.to(torch.float32)
    y = y.to(torch.float32)
    (total,) = [tl.sum(1).unsqueeze(1) for tl in (times(y, dy),)]
    return copied(times(y, minus(dy, total)), out)


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
