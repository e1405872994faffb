# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward_kernel sets `s = 0.0` once before its loop over rows, so the second and later rows of a program also contain the sums of its earlier rows: wrong in softmax_backward and the gradient of softmax for matrices of more than 128 rows (PROGRAMS), from row 128 on; s = 0.0 belongs inside the while loop. (2) OnlineSoftmax.backward copies dy only `if dy.stride(1) == 0`, which is right for expanded gradients, but a transposed dy or one with every second column of a wider matrix goes to the kernel as if its columns were contiguous: wrong gradient of softmax for these layouts; it should be dy.contiguous(), or the condition dy.stride(1) != 1.
"""Softmax over rows of any length, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PROGRAMS = 128  # of the backward pass, about one for each multiprocessor; each takes several rows


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)

    biggest = -float("inf")
    denominator = 0.0
    for start in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(x_ptrs + start, mask=valid, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        raised = tl.maximum(biggest, tl.max(x, axis=0))
        base = tl.where(raised == -float("inf"), 0.0, raised)
        denominator *= tl.exp(biggest - base)
        denominator += tl.sum(tl.exp(x - base), axis=0)
        biggest = raised

    for start in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(x_ptrs + start, mask=valid, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - biggest) / denominator
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_programs,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Program p owns the rows p, p + n_programs, p + 2 * n_programs, ..."""
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    while row < n_rows:
        dy_ptrs = dy_ptr + row * stride_dy + lane
        y_ptrs = y_ptr + row * stride_y + lane
        dx_ptrs = dx_ptr + row * stride_dx + lane

        for start in range(0, n_cols, BLOCK):
            valid = lane < n_cols - start
            dy = tl.load(dy_ptrs + start, mask=valid, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_ptrs + start, mask=valid, other=0.0, eviction_policy="evict_last").to(tl.float32)
            s += tl.sum(y * dy, axis=0)

        for start in range(0, n_cols, BLOCK):
            valid = lane < n_cols - start
            dy = tl.load(dy_ptrs + start, mask=valid, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_ptrs + start, mask=valid, other=0.0, eviction_policy="evict_first").to(tl.float32)
            tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=valid)

        row += n_programs


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.size(0), x.size(1)
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = clamp(triton.next_power_of_2(n_cols), 64, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 2, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.size(0), y.size(1)
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = clamp(triton.next_power_of_2(n_cols), 64, BACKWARD_BLOCK)
    n_programs = min(n_rows, PROGRAMS)
    softmax_backward_kernel[(n_programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        n_programs,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
