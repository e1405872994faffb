# labs/lab2_online_softmax/online_softmax.py | right | both sweeps run from the last block of a row to the first; every lane keeps a maximum and a sum of its own, and they are brought to one maximum after the loop; an extra check leaves the gradient out where it is not needed.
"""Softmax from the end of each row, with one online recurrence in every lane, and its gradient."""

import torch
import triton
import triton.language as tl

WIDEST = 4096


@triton.jit
def fetch(row_ptr, index, n_cols, fill, BLOCK: tl.constexpr):
    """Block number index of a row as fp32, its columns, and which of them exist."""
    cols = index * BLOCK + tl.arange(0, BLOCK)
    ok = cols < n_cols
    return tl.load(row_ptr + cols, mask=ok, other=fill).to(tl.float32), cols, ok


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, n_blocks, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    tops = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(0, n_blocks):
        x, cols, ok = fetch(x_row, n_blocks - 1 - turn, n_cols, -float("inf"), BLOCK)
        raised = tl.maximum(tops, x)
        base = tl.where(raised == -float("inf"), 0.0, raised)
        sums = sums * tl.exp(tops - base) + tl.exp(x - base)
        tops = raised
    top = tl.max(tops, axis=0)
    total = tl.sum(sums * tl.exp(tops - top), axis=0)
    for turn in range(0, n_blocks):
        x, cols, ok = fetch(x_row, n_blocks - 1 - turn, n_cols, -float("inf"), BLOCK)
        tl.store(y_row + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def backward_kernel(g_ptr, y_ptr, dx_ptr, n_cols, n_blocks, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + row * stride_g
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    dots = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(0, n_blocks):
        g, cols, ok = fetch(g_row, n_blocks - 1 - turn, n_cols, 0.0, BLOCK)
        y, cols, ok = fetch(y_row, n_blocks - 1 - turn, n_cols, 0.0, BLOCK)
        dots += g * y
    dot = tl.sum(dots, axis=0)
    for turn in range(0, n_blocks):
        g, cols, ok = fetch(g_row, turn, n_cols, 0.0, BLOCK)
        y, cols, ok = fetch(y_row, turn, n_cols, 0.0, BLOCK)
        tl.store(dx_row + cols, (y * (g - dot)).to(dx_ptr.dtype.element_ty), mask=ok)


def cut(n_cols):
    """Width and number of the blocks of a row."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, triton.cdiv(n_cols, block)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, n_blocks = cut(n_cols)
    forward_kernel[(n_rows,)](x, out, n_cols, n_blocks, x.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block, n_blocks = cut(n_cols)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, n_blocks, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x):
    return OnlineSoftmax.apply(x)
