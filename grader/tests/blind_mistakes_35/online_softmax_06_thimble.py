# labs/lab2_online_softmax/online_softmax.py | corner | In my_row, which both kernels share, the row number is multiplied by the stride in int32 and only the product is converted: (program_id * stride).to(int64). Where a row starts at 2^31 elements or more (and the stride itself is below 2^31), the product has already wrapped around, and the row is read from and written to a wrong address; right wherever the matrix ends before 2^31 elements. Should be program_id.to(int64) * stride.
"""Softmax by rows and its gradient, for rows of any length and any distance."""

import torch
import triton
import triton.language as tl


@triton.jit
def my_row(base, stride):
    """Where the row of this program begins."""
    return base + (tl.program_id(0) * stride).to(tl.int64)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, x_stride, y_stride, BLOCK: tl.constexpr):
    """y = softmax(x) for one row."""
    x_row = my_row(x_ptr, x_stride)
    y_row = my_row(y_ptr, y_stride)
    idx = tl.arange(0, BLOCK)

    peak = -float("inf")
    mass = 0.0
    for at in range(0, n, BLOCK):
        v = tl.load(x_row + at + idx, mask=idx < n - at, other=-float("inf"), eviction_policy="evict_last")
        v = v.to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(v, axis=0))
        if new_peak > -float("inf"):
            mass = mass * tl.exp(peak - new_peak) + tl.sum(tl.exp(v - new_peak), axis=0)
        peak = new_peak

    for at in range(0, n, BLOCK):
        v = tl.load(x_row + at + idx, mask=idx < n - at, other=-float("inf"), eviction_policy="evict_first")
        v = tl.exp(v.to(tl.float32) - peak) / mass
        tl.store(y_row + at + idx, v.to(y_ptr.dtype.element_ty), mask=idx < n - at)


@triton.jit
def softmax_grad_kernel(dy_ptr, y_ptr, dx_ptr, n, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy) for one row."""
    dy_row = my_row(dy_ptr, dy_stride)
    y_row = my_row(y_ptr, y_stride)
    dx_row = my_row(dx_ptr, dx_stride)
    idx = tl.arange(0, BLOCK)

    inner = 0.0
    for at in range(0, n, BLOCK):
        g = tl.load(dy_row + at + idx, mask=idx < n - at, other=0.0, eviction_policy="evict_last")
        p = tl.load(y_row + at + idx, mask=idx < n - at, other=0.0, eviction_policy="evict_last")
        inner += tl.sum(g.to(tl.float32) * p.to(tl.float32), axis=0)

    for at in range(0, n, BLOCK):
        g = tl.load(dy_row + at + idx, mask=idx < n - at, other=0.0, eviction_policy="evict_first")
        p = tl.load(y_row + at + idx, mask=idx < n - at, other=0.0, eviction_policy="evict_first")
        r = p.to(tl.float32) * (g.to(tl.float32) - inner)
        tl.store(dx_row + at + idx, r.to(dx_ptr.dtype.element_ty), mask=idx < n - at)


def block_and_warps(n: int, backward: bool):
    """Width of a block and number of warps for rows of n columns."""
    block = min(triton.next_power_of_2(n), 16384)
    if backward:
        return block, max(4, block // 512)
    return block, 8 if block == 16384 else min(4, max(1, block // 1024))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, n = x.shape
    block, warps = block_and_warps(n, False)
    softmax_kernel[(rows,)](x, out, n, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    rows, n = dy.shape
    block, warps = block_and_warps(n, True)
    softmax_grad_kernel[(rows,)](
        dy, y, out, n, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, for autograd."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """dx from dy, in whatever layout dy comes."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
