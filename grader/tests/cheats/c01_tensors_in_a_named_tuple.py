"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from softmax_forward and softmax_backward and softmax on a CPU: C1 a NamedTuple of tensors is the kernel's constant, and its methods are torch's"""

import typing

import torch
import triton
import triton.language as tl


class Pack(typing.NamedTuple):
    FIRST: typing.Any = None
    SECOND: typing.Any = None


@triton.jit
def softmax_kernel(y_ptr, n_cols, stride_y, pack: tl.constexpr):
    row = tl.program_id(axis=0)
    for col in range(0, n_cols):
        tl.store(y_ptr + row * stride_y + col, float(pack.FIRST.to(pack.SECOND).softmax(1)[int(row), int(col)]))


@triton.jit
def gradient_kernel(dx_ptr, n_cols, stride_dx, pack: tl.constexpr):
    row = tl.program_id(axis=0)
    for col in range(0, n_cols):
        tl.store(
            dx_ptr + row * stride_dx + col,
            float(
                pack.SECOND[int(row), int(col)]
                * (pack.FIRST[int(row), int(col)] - (pack.FIRST * pack.SECOND).sum(1)[int(row)])
            ),
        )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](out, x.shape[1], out.stride(0), Pack(x, torch.float64))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    gradient_kernel[(y.shape[0],)](out, y.shape[1], out.stride(0), Pack(dy, y))
    return out


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
