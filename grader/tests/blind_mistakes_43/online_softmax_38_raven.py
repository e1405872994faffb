# labs/lab2_online_softmax/online_softmax.py | error | softmax_forward, in `lanes_softmax_kernel`: `best = tl.full((BLOCK,), -float("inf"), dtype=x_ptr.dtype.element_ty)` should have dtype tl.float32. For fp16 and bf16 the variable enters the loop in 16 bits and becomes fp32 in it (`better = tl.maximum(best, x)`), and Triton refuses to compile a loop-carried variable whose type changes. fp32 is right; Triton's interpreter does not notice it.
"""Softmax by rows with a maximum for each lane: the lanes meet once, at the end of the row."""

import torch
import triton
import triton.language as tl

LANES = 4096
GRADIENT_LANES = 8192


@triton.jit
def lanes_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y; lane j has the columns j, j + BLOCK, ... of the row, and a sum relative to its own maximum."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    best = tl.full((BLOCK,), -float("inf"), dtype=x_ptr.dtype.element_ty)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + lane, mask=start + lane < n_cols, other=-float("inf")).to(tl.float32)
        better = tl.maximum(best, x)
        # While a lane has seen -inf alone, any finite number will do.
        shift = tl.where(better == -float("inf"), 0.0, better)
        total = total * tl.exp(best - shift) + tl.exp(x - shift)
        best = better

    m = tl.max(best, axis=0)
    d = tl.sum(total * tl.exp(best - m), axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        x = tl.load(x_row + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def lanes_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx; the lanes add up y * dy, and meet once."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        products += dy * y

    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def meta(n_cols: int, most: int) -> dict:
    """Lanes and warps for rows of n_cols columns, with at most `most` lanes."""
    lanes = min(triton.next_power_of_2(n_cols), most)
    return {"BLOCK": lanes, "num_warps": min(max(lanes // 512, 2), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; returns `out`, or a new contiguous matrix."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    lanes_softmax_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), **meta(n_cols, LANES))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; returns `out`, or a new contiguous matrix."""
    n_rows, n_cols = y.shape
    dx = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device) if out is None else out
    lanes_gradient_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), **meta(n_cols, GRADIENT_LANES)
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, and softmax_backward for its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y, and save it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, from a dy of any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
