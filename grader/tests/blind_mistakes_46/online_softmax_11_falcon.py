# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `forward_kernel`, `log_total = tl.log(total)` is a natural logarithm but is subtracted in an exponent of base 2 (`tl.exp2((x - peak) * LOG2E - log_total)`); it should be `tl.log2(total)`. Rows are too large by 2^(log2 d - ln d) and sum to more than 1, in all cases but those with d = 1 (one column, one number that towers over the rest).
"""Online softmax without a division: the logarithm of the sum goes into the exponent. With gradient and autograd."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) is exp2(t * LOG2E)


@triton.jit
def power(t):
    """exp(t), by the instruction that the hardware has."""
    return tl.exp2(t * LOG2E)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - peak - log(total)); one program for each row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    cols = tl.arange(0, BLOCK)
    peak = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * power(peak - shift) + tl.sum(power(x - shift), axis=0)
        peak = higher
    # The row is divided by its sum, which is at least 1, by a subtraction in the exponent.
    log_total = tl.log(total)
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_ptr + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - peak) * LOG2E - log_total)
        tl.store(y_ptr + start + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - dot(y[i, :], dy[i, :])); one program for each row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    cols = tl.arange(0, BLOCK)
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        dot += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - dot)
        tl.store(dx_ptr + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def width(n_cols: int) -> int:
    """The columns of a block: a power of two."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the rows of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous, any row stride."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = width(n_cols)
    warps = 8 if block == WIDEST else min(max(block // 1024, 1), 4)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from the gradient dy of its result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    block = width(n_cols)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=min(max(block // 512, 4), 32)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
