# labs/lab2_online_softmax/online_softmax.py | corner | In lazy_softmax_kernel the second sweep uses exp(x - top), but `total` is relative to `base`, which may lie up to 8 below `top` when a later block raised the maximum by less than 8: such rows (longer than one block of 4096) are scaled by exp(base - top). It should be exp(x - base) / total.
"""Softmax with a lazy rescale: the running sum keeps its scale until the maximum has grown by more than 8."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def lazy_softmax_kernel(x_ptr, y_ptr, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * x_step
    y_ptr += row * y_step
    lanes = tl.arange(0, BLOCK)

    top = -float("inf")  # the maximum so far
    base = -float("inf")  # what the exponents are relative to
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, axis=0))
        # exp(8) is about 3000: far from an overflow, so a small step up needs no new scale
        moved = tl.where(top > base + 8.0, top, base)
        shift = tl.where(moved == -float("inf"), 0.0, moved)
        total = total * tl.exp(base - shift) + tl.sum(tl.exp(x - shift), axis=0)
        base = moved

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_grad_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_step, y_step, dx_step, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * dy_step
    y_ptr += row * y_step
    dx_ptr += row * dx_step
    lanes = tl.arange(0, BLOCK)

    # one partial sum for each lane, and a single reduction after the loop
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        partial += g * p
    dot = tl.sum(partial, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (p * (g - dot)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_for(n_cols: int, widest: int) -> int:
    return max(16, min(triton.next_power_of_2(n_cols), widest))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lazy_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_for(n_cols, FORWARD_BLOCK), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    softmax_grad_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, BACKWARD_BLOCK),
        num_warps=8,
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
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
