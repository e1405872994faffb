# HOST | labs/lab2_online_softmax/online_softmax.py | CPU | max, sum and pow of Python work on tensors by their special methods; rows and columns come from iteration and the kernel only copies a finished matrix in | POLICY/FOREIGN_KERNEL or HOST_READ; no points
import math

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(from_ptr, to_ptr, n_cols, stride_from, stride_to, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    value = tl.load(from_ptr + row * stride_from + cols, mask=cols < n_cols)
    tl.store(to_ptr + row * stride_to + cols, value.to(to_ptr.dtype.element_ty), mask=cols < n_cols)


def copied(ready, out):
    block = triton.next_power_of_2(ready.shape[1])
    copy_kernel[(ready.shape[0],)](ready, out, ready.shape[1], ready.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    ready = torch.empty(x.shape, dtype=torch.float64)
    for row, place in zip(x.to(torch.float64), ready):
        top = max(row)
        parts = [pow(math.e, float(value) - float(top)) for value in row]
        whole = sum(parts)
        for col, part in enumerate(parts):
            place[col : col + 1].fill_(part / whole)
    return copied(ready, out)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    ready = torch.empty(dy.shape, dtype=torch.float64)
    for row_dy, row_y, place in zip(dy.to(torch.float64), y.to(torch.float64), ready):
        whole = sum([float(a) * float(b) for a, b in zip(row_dy, row_y)])
        for col in range(dy.shape[1]):
            place[col : col + 1].fill_(float(row_y[col]) * (float(row_dy[col]) - whole))
    return copied(ready, out)


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
