# labs/lab2_online_softmax/online_softmax.py | right | Unusual: each lane runs its own recurrence with one exponential exp(-|x - m|) and a choice of which side shrinks; m starts at the lowest finite fp32 in place of -inf, so no guard against -inf - -inf is needed (empty lanes have d = 0); the second sweep runs from the last block to the first; a fixed number of programs walks over the rows with a while loop.
"""Online softmax with one exponential for each element and sweep; the second sweep runs from the end."""

import torch
import triton
import triton.language as tl

LANES = 2048
BACKWARD_BLOCK = 16384
PROGRAMS = 2112


@triton.jit
def ratio(a, b):
    """exp(smaller - larger) of two finite numbers, or of one finite number and -inf."""
    return tl.exp2(-tl.abs(a - b) * 1.4426950408889634)


@triton.jit
def two_way_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    """Program p owns the rows p, p + P, ... of P programs; lane k of it the columns k, k + LANES, ..."""
    lane = tl.arange(0, LANES)
    last = (n_cols - 1) // LANES * LANES  # first column of the last block
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        # The lowest finite fp32: no value of a row is below it but -inf, and it minus -inf is no NaN.
        m = tl.full((LANES,), -3.4028234663852886e38, tl.float32)
        d = tl.zeros((LANES,), tl.float32)
        for start in range(0, n_cols, LANES):
            cols = start + lane
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            e = ratio(x, m)
            d = tl.where(x > m, d * e + 1.0, d + e)
            m = tl.maximum(m, x)
        top = tl.max(m, axis=0)
        total = tl.sum(d * ratio(m, top), axis=0)
        for start in range(0, n_cols, LANES):
            cols = last - start + lane
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
            y = ratio(x.to(tl.float32), top) / total
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    two_way_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), LANES=lanes, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
