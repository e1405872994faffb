# labs/lab2_online_softmax/online_softmax.py | error | In `walk_forward`, `peak = tl.load(x_first)` has the dtype of x, and in the loop becomes fp32 (`peak = new_peak`); it should be `tl.load(x_first).to(tl.float32)`. For fp16 and bf16 Triton refuses the kernel (loop-carried variable with another type), in all sizes; fp32 compiles and is right, and the interpreter, which does not check types, takes fp16 as well.
"""Softmax over rows by pointers that walk along the row; its gradient; and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def walk_forward(x_ptr, y_ptr, n_cols, step_x, step_y, BLOCK: tl.constexpr):
    """One row: the maximum starts with the first element, and the sum grows with every block."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_first = x_ptr + row * step_x
    lane = tl.arange(0, BLOCK)

    peak = tl.load(x_first)
    mass = 0.0
    x_at = x_first + lane
    for done in range(0, n_cols, BLOCK):
        z = tl.load(x_at, mask=lane < n_cols - done, other=-float("inf"), eviction_policy="evict_last")
        z = z.to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(z, axis=0))
        shift = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - shift) + tl.sum(tl.exp(z - shift), axis=0)
        peak = new_peak
        x_at += BLOCK

    weight = 1.0 / mass
    x_at = x_first + lane
    y_at = y_ptr + row * step_y + lane
    for done in range(0, n_cols, BLOCK):
        here = lane < n_cols - done
        z = tl.load(x_at, mask=here, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(z - peak) * weight
        tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=here, eviction_policy="evict_first")
        x_at += BLOCK
        y_at += BLOCK


@triton.jit
def walk_backward(dy_ptr, y_ptr, dx_ptr, n_cols, step_dy, step_y, step_dx, BLOCK: tl.constexpr):
    """One row: the sum of y * dy lane by lane, then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    dy_at = dy_ptr + row * step_dy + lane
    y_at = y_ptr + row * step_y + lane
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for done in range(0, n_cols, BLOCK):
        here = lane < n_cols - done
        g = tl.load(dy_at, mask=here, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_at, mask=here, other=0.0, eviction_policy="evict_last").to(tl.float32)
        parts += g * y
        dy_at += BLOCK
        y_at += BLOCK
    s = tl.sum(parts, axis=0)

    dy_at = dy_ptr + row * step_dy + lane
    y_at = y_ptr + row * step_y + lane
    dx_at = dx_ptr + row * step_dx + lane
    for done in range(0, n_cols, BLOCK):
        here = lane < n_cols - done
        g = tl.load(dy_at, mask=here, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_at, mask=here, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (g - s)
        tl.store(dx_at, dx.to(dx_ptr.dtype.element_ty), mask=here, eviction_policy="evict_first")
        dy_at += BLOCK
        y_at += BLOCK
        dx_at += BLOCK


def width_and_warps(n_cols: int, widest: int, per_warp: int) -> tuple:
    """Columns of a block, and the warps that hold it."""
    width = min(triton.next_power_of_2(n_cols), widest)
    return width, min(max(width // per_warp, 2), 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = x.shape
    width, warps = width_and_warps(n_cols, FORWARD_BLOCK, 1024)
    walk_forward[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), BLOCK=width, num_warps=warps)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    dx = torch.empty_like(dy, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = dy.shape
    width, warps = width_and_warps(n_cols, BACKWARD_BLOCK, 512)
    walk_backward[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=width, num_warps=warps
    )
    return dx


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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
