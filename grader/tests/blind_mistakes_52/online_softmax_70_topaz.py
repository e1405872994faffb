# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `backward_kernel`, both branches store `product - dot` with `product = dy * y`, that is y*dy - s; it should be `product - y * dot`, i.e. y * (dy - dot). The factor y on the sum is missing. Wrong in softmax_backward and in the gradient of softmax for every row with more than one column; softmax_forward is right.
"""Softmax over the rows of a matrix, its gradient, and both for autograd. exp is taken as a power of two."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

WIDEST = 16384


@triton.jit
def exp_of(difference):
    """exp of a block of differences; they are scaled only after the maximum was subtracted."""
    return tl.exp2(difference * LOG2E)


@triton.jit
def forward_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr):
    """Program i normalises row i: one sweep for maximum and sum, one for the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)

    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        # So far there may be nothing but -inf. Any finite shift will do then.
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * exp_of(top - shift) + tl.sum(exp_of(x - shift), axis=0)
        top = new_top

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = exp_of(x.to(tl.float32) - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, n_cols, BLOCK: tl.constexpr, FITS: tl.constexpr
):
    """Program i computes row i of the gradient. A row that fits one block is read only once."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    if FITS:
        mask = lanes < n_cols
        dy = tl.load(dy_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + lanes, mask=mask, other=0.0).to(tl.float32)
        product = dy * y
        dot = tl.sum(product, axis=0)
        tl.store(dx_ptr + lanes, (product - dot).to(dx_ptr.dtype.element_ty), mask=mask)
    else:
        dot = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            dot += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            product = dy * y
            tl.store(dx_ptr + cols, (product - dot).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x, in `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = 8 if block == WIDEST else min(max(block // 1024, 1), 4)
    forward_kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), n_cols, BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the rows of x, from dy and the result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST // 2)
    warps = min(max(block // 512, 4), 16)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        n_cols,
        BLOCK=block,
        FITS=n_cols <= block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The forward pass keeps its result; nothing else is needed for the gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which may have any strides."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
