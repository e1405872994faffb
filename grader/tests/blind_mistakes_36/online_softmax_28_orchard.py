# labs/lab2_online_softmax/online_softmax.py | contract | softmax_backward, `out = dy if out is None else out`: without `out` the gradient is written over dy, an input, and dy itself is returned; the numbers are right, but "inputs are read-only" and "otherwise the function returns a new contiguous matrix" are broken; it shows where no out is passed, also in the gradient of softmax where the incoming gradient is contiguous already (the caller's tensor is overwritten); it should allocate a new contiguous matrix
"""Online softmax and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    src,
    dst,
    n_cols,
    src_stride,
    dst_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    src += row * src_stride
    dst += row * dst_stride
    biggest = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        block = tl.load(src + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        block = block.to(tl.float32)
        candidate = tl.maximum(biggest, tl.max(block, axis=0))
        base = tl.where(candidate == -float("inf"), 0.0, candidate)
        total = total * tl.exp(biggest - base) + tl.sum(tl.exp(block - base), axis=0)
        biggest = candidate
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        block = tl.load(src + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        share = tl.exp(block.to(tl.float32) - biggest) / total
        tl.store(
            dst + cols,
            share.to(dst.dtype.element_ty),
            mask=cols < n_cols,
            eviction_policy="evict_first",
        )


@triton.jit
def softmax_backward_kernel(
    grad,
    prob,
    dst,
    n_cols,
    grad_stride,
    prob_stride,
    dst_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    prob += row * prob_stride
    dst += row * dst_stride
    inner = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(grad + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        p = tl.load(prob + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        inner += tl.sum(g.to(tl.float32) * p.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(grad + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        p = tl.load(prob + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        result = p.to(tl.float32) * (g.to(tl.float32) - inner)
        tl.store(
            dst + cols,
            result.to(dst.dtype.element_ty),
            mask=cols < n_cols,
            eviction_policy="evict_first",
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax; the result goes to `out` where one is given."""
    out = dy if out is None else out
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax whose gradient is softmax_backward."""

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
