# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) forward: lanes past the end load 0 and are left out of the maximum but not out of d, they must add 0 to it (load -inf): rows with a tail are too small; (2) backward: the first loop runs n_cols // BLOCK times, it must be cdiv: s lacks the last, partial block
"""
Fused (online) softmax
======================

In this file we write a softmax that never holds a whole row. We need

* a forward kernel with two sweeps over the row,
* a backward kernel with two sweeps over the row,
* the plumbing for autograd.
"""

import torch
import triton
import triton.language as tl

# %%
# Forward
# -------
# Columns come in blocks. The statistics of the row are ``m`` (maximum) and ``d`` (denominator, relative to ``m``).

BLOCK_SIZE = 4096


@triton.jit
def softmax_fwd_kernel(input_ptr, output_ptr, n_cols, input_row_stride, output_row_stride, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    row_start_ptr = input_ptr + row_idx * input_row_stride
    output_row_start_ptr = output_ptr + row_idx * output_row_stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    n_blocks = tl.cdiv(n_cols, BLOCK_SIZE)

    m = -float("inf")
    d = 0.0
    for b in range(0, n_blocks):
        cols = b * BLOCK_SIZE + col_offsets
        mask = cols < n_cols
        values = tl.load(row_start_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        # the padding must not win the maximum
        block_max = tl.max(tl.where(mask, values, -float("inf")), axis=0)
        m_new = tl.maximum(m, block_max)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        numerator = tl.exp(values - shift)
        d = d * tl.exp(m - shift) + tl.sum(numerator, axis=0)
        m = m_new

    # Write back output
    for b in range(0, n_blocks):
        cols = b * BLOCK_SIZE + col_offsets
        mask = cols < n_cols
        values = tl.load(row_start_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        softmax_output = tl.exp(values - m) / d
        tl.store(output_row_start_ptr + cols, softmax_output.to(output_ptr.dtype.element_ty), mask=mask)


# %%
# Backward
# --------
# First the dot product of the row of ``y`` with the row of ``dy``, then the result.


@triton.jit
def softmax_bwd_kernel(
    grad_ptr, output_ptr, result_ptr, n_cols, grad_row_stride, output_row_stride, result_row_stride,
    BLOCK_SIZE: tl.constexpr,
):
    row_idx = tl.program_id(0).to(tl.int64)
    grad_row = grad_ptr + row_idx * grad_row_stride
    output_row = output_ptr + row_idx * output_row_stride
    result_row = result_ptr + row_idx * result_row_stride
    col_offsets = tl.arange(0, BLOCK_SIZE)

    dot = 0.0
    for b in range(0, n_cols // BLOCK_SIZE):
        cols = b * BLOCK_SIZE + col_offsets
        mask = cols < n_cols
        grad = tl.load(grad_row + cols, mask=mask, other=0.0).to(tl.float32)
        output = tl.load(output_row + cols, mask=mask, other=0.0).to(tl.float32)
        dot += tl.sum(grad * output, axis=0)

    for b in range(0, tl.cdiv(n_cols, BLOCK_SIZE)):
        cols = b * BLOCK_SIZE + col_offsets
        mask = cols < n_cols
        grad = tl.load(grad_row + cols, mask=mask, other=0.0).to(tl.float32)
        output = tl.load(output_row + cols, mask=mask, other=0.0).to(tl.float32)
        result = output * (grad - dot)
        tl.store(result_row + cols, result.to(result_ptr.dtype.element_ty), mask=mask)


# %%
# Wrappers
# --------


def softmax_forward(x, *, out=None):
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block_size = min(triton.next_power_of_2(n_cols), BLOCK_SIZE)
    softmax_fwd_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), BLOCK_SIZE=block_size, num_warps=4)
    return y


def softmax_backward(dy, y, *, out=None):
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block_size = min(triton.next_power_of_2(n_cols), BLOCK_SIZE)
    softmax_bwd_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK_SIZE=block_size, num_warps=8
    )
    return dx


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


def softmax(x):
    return OnlineSoftmax.apply(x)
