# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax with a fixed number of programs that take turns over the rows, and powers of 2 in place of exp."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2112  # 16 for each multiprocessor of an H200


@triton.jit
def e_to(t):
    """exp(t) as a power of 2; t is a difference already, so that the product rounds a small number."""
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def softmax_turns(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of rows p, p + programs, p + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        crest = -float("inf")
        weight = 0.0
        for start in range(0, n_cols, BLOCK):
            live = lanes < n_cols - start
            x = tl.load(x_row + start + lanes, mask=live, other=-float("inf")).to(tl.float32)
            before = crest
            crest = tl.maximum(before, tl.max(x, axis=0))
            level = tl.where(crest == -float("inf"), 0.0, crest)
            weight = weight * e_to(before - level) + tl.sum(e_to(x - level), axis=0)
        share = 1.0 / weight
        for start in range(0, n_cols, BLOCK):
            live = lanes < n_cols - start
            x = tl.load(x_row + start + lanes, mask=live, other=-float("inf")).to(tl.float32)
            y = e_to(x - crest) * share
            tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=live)
        row += tl.num_programs(0)


@triton.jit
def gradient_turns(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of rows p, p + programs, p + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        mean = 0.0  # of dy, weighted with y
        for start in range(0, n_cols, BLOCK):
            live = lanes < n_cols - start
            dy = tl.load(dy_row + start + lanes, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=live, other=0.0).to(tl.float32)
            mean += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            live = lanes < n_cols - start
            dy = tl.load(dy_row + start + lanes, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=live, other=0.0).to(tl.float32)
            dx = y * (dy - mean)
            tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=live)
        row += tl.num_programs(0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    y = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    softmax_turns[(min(n_rows, PROGRAMS),)](
        x, y, n_rows, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=max(1, block // 1024)
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    dx = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    gradient_turns[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        dx,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=max(2, block // 512),
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y, which backward needs as well."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx; nothing to do where x has no gradient."""
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
