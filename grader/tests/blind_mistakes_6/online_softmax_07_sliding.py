# labs/lab2_online_softmax/online_softmax.py | corner | In the second sweep of backward_kernel the block pointer `soft` is not advanced, so later blocks of dx use y of the first block. Needs soft = tl.advance(soft, (BLOCK,)). Shown by rows of more than 2048 columns in the backward pass.
"""Softmax with block pointers: one program owns one row and slides a block over it."""

import torch
import triton
import triton.language as tl

NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def row_block(ptr, row, stride, n_cols, BLOCK: tl.constexpr):
    """A block pointer to the first BLOCK columns of a row."""
    return tl.make_block_ptr(
        base=ptr + row * stride, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)

    # sweep 1: running maximum and running denominator
    running_max = NEG_INF
    denominator = 0.0
    source = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    for first in range(0, n_cols, BLOCK):
        values = tl.load(source, boundary_check=(0,), padding_option="zero").to(tl.float32)
        values = tl.where(first + columns < n_cols, values, NEG_INF)
        best = tl.maximum(running_max, tl.max(values, axis=0))
        base = tl.where(best == NEG_INF, 0.0, best)
        denominator = denominator * tl.exp(running_max - base) + tl.sum(tl.exp(values - base), axis=0)
        running_max = best
        source = tl.advance(source, (BLOCK,))

    # sweep 2: write the quotient
    source = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    target = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    for first in range(0, n_cols, BLOCK):
        values = tl.load(source, boundary_check=(0,), padding_option="zero").to(tl.float32)
        result = tl.exp(values - running_max) / denominator
        tl.store(target, result.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        source = tl.advance(source, (BLOCK,))
        target = tl.advance(target, (BLOCK,))


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)

    # sweep 1: the inner product of y and dy
    inner = tl.zeros((BLOCK,), dtype=tl.float32)
    grad = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    soft = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    for first in range(0, n_cols, BLOCK):
        g = tl.load(grad, boundary_check=(0,), padding_option="zero").to(tl.float32)
        p = tl.load(soft, boundary_check=(0,), padding_option="zero").to(tl.float32)
        inner += g * p
        grad = tl.advance(grad, (BLOCK,))
        soft = tl.advance(soft, (BLOCK,))
    dot = tl.sum(inner, axis=0)

    # sweep 2: dx
    grad = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    soft = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    target = row_block(dx_ptr, row, stride_dx, n_cols, BLOCK)
    for first in range(0, n_cols, BLOCK):
        g = tl.load(grad, boundary_check=(0,), padding_option="zero").to(tl.float32)
        p = tl.load(soft, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(target, (p * (g - dot)).to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        grad = tl.advance(grad, (BLOCK,))
        target = tl.advance(target, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 2048)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y)
    n_rows, n_cols = y.shape
    BLOCK = min(triton.next_power_of_2(n_cols), 2048)
    backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        return softmax_backward(grad_output, result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
