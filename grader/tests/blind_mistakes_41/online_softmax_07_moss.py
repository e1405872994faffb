# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) Exercise softmax_forward (and softmax): the constant `LOG2_OF_E = tl.constexpr(1.4462950408889634)` has exchanged digits, it should be 1.4426950408889634; rows still sum to 1, but are a little too steep, in nearly all cases (not for one column, constant rows, or rows of one towering value). (2) Exercise softmax_backward: the launch passes `dy.stride(0), out.stride(0), y.stride(0)`, but the kernel's order is dy_stride, y_stride, dx_stride; it should be `dy.stride(0), y.stride(0), out.stride(0)`. Shows only where y and out have different row strides (padded y or padded out).
"""Softmax over rows of any length and its gradient; widths of blocks come from heuristics, exponents are of base 2."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
LOG2_OF_E = tl.constexpr(1.4462950408889634)


@triton.jit
def exp_of_difference(a, b):
    """exp(a - b): the difference first, then the factor, so that numbers far from 0 keep their digits."""
    return tl.exp2((a - b) * LOG2_OF_E)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), FORWARD_BLOCK)})
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    lanes = tl.arange(0, BLOCK)

    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        x = tl.load(x_row + start + lanes, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * exp_of_difference(top, base) + tl.sum(exp_of_difference(x, base), axis=0)
        top = new_top

    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        x = tl.load(x_row + start + lanes, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = exp_of_difference(x.to(tl.float32), top) / total
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), BACKWARD_BLOCK)})
@triton.jit
def softmax_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride
    lanes = tl.arange(0, BLOCK)

    dot = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last")
        dot += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(dot, axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    softmax_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), out.stride(0), y.stride(0), num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
