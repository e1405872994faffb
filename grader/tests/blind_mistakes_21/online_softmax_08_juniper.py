# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax in two launches: one program per row for its maximum and sum, then one per block of columns for y."""

import torch
import triton
import triton.language as tl

REDUCE_BLOCK = 4096
MAP_BLOCK = 2048


@triton.jit
def row_statistics_kernel(x_ptr, max_ptr, sum_ptr, n_cols, stride_x, BLOCK: tl.constexpr):
    """max[i] and sum[i] = sum exp(x[i, :] - max[i]). Goes from the last block to the first."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    peak = -float("inf")
    total = 0.0
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        here = tl.max(x, axis=0)
        joint = tl.maximum(peak, here)
        # with nothing but -inf so far, each exponential below is exp(-inf)
        origin = tl.where(joint == -float("inf"), 0.0, joint)
        total = total * tl.exp(peak - origin) + tl.sum(tl.exp(x - origin), axis=0)
        peak = joint
    tl.store(max_ptr + row, peak)
    tl.store(sum_ptr + row, total)


@triton.jit
def normalise_kernel(x_ptr, y_ptr, max_ptr, sum_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    real = cols < n_cols
    peak = tl.load(max_ptr + row)
    total = tl.load(sum_ptr + row)
    x = tl.load(x_ptr + row * stride_x + cols, mask=real, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - peak) / total
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=real)


@triton.jit
def row_dot_kernel(a_ptr, b_ptr, dot_ptr, n_cols, stride_a, stride_b, BLOCK: tl.constexpr):
    """dot[i] = sum a[i, :] * b[i, :], summed lane by lane first."""
    row = tl.program_id(axis=0).to(tl.int64)
    a_row = a_ptr + row * stride_a
    b_row = b_ptr + row * stride_b
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        a = tl.load(a_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        b = tl.load(b_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        acc += a * b
    tl.store(dot_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, dot_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    real = cols < n_cols
    s = tl.load(dot_ptr + row)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=real, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=real, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=real)


def per_row(t: torch.Tensor) -> torch.Tensor:
    """Room for one fp32 number for each row of t."""
    return torch.empty((t.shape[0],), dtype=torch.float32, device=t.device)


def widths(n_cols: int) -> tuple:
    whole = triton.next_power_of_2(n_cols)
    return min(whole, REDUCE_BLOCK), min(whole, MAP_BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    wide, narrow = widths(n_cols)
    peaks, totals = per_row(x), per_row(x)
    row_statistics_kernel[(n_rows,)](x, peaks, totals, n_cols, x.stride(0), BLOCK=wide, num_warps=4)
    normalise_kernel[(n_rows, triton.cdiv(n_cols, narrow))](
        x, out, peaks, totals, n_cols, x.stride(0), out.stride(0), BLOCK=narrow, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    wide, narrow = widths(n_cols)
    dots = per_row(y)
    row_dot_kernel[(n_rows,)](dy, y, dots, n_cols, dy.stride(0), y.stride(0), BLOCK=wide, num_warps=4)
    gradient_kernel[(n_rows, triton.cdiv(n_cols, narrow))](
        dy, y, out, dots, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=narrow, num_warps=4
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
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
