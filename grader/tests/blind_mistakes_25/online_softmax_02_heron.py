# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, second loop, `g * p - s`: the sum s is subtracted without being multiplied by p (= y), so dx is wrong in nearly every row of softmax_backward and of the gradient of softmax. It should be p * (g - s).
"""Online softmax and its gradient, with autotuned blocks and warps."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)

CONFIGS = [
    triton.Config({"BLOCK": 512}, num_warps=2),
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 8192}, num_warps=8),
    triton.Config({"BLOCK": 16384}, num_warps=16),
]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y

    # sweep 1: maximum and sum. exp2 is what the hardware has, so exp(t) = exp2(t * log2(e)).
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        ref = tl.where(m_new == -float("inf"), 0.0, m_new)
        alpha = tl.exp2((m - ref) * LOG2E)
        d = d * alpha + tl.sum(tl.exp2((x - ref) * LOG2E), axis=0)
        m = m_new

    # sweep 2: the row again, mostly out of L2
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_ptr + c, y.to(y_ptr.dtype.element_ty), mask=c < n_cols, eviction_policy="evict_first")


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(g * p, axis=0)

    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = g * p - s
        tl.store(dx_ptr + c, dx.to(dx_ptr.dtype.element_ty), mask=c < n_cols, eviction_policy="evict_first")


def new_like(t: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of the shape, dtype and device of t."""
    return torch.empty(t.shape, dtype=t.dtype, device=t.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = new_like(x) if out is None else out
    rows, cols = x.shape
    online_softmax_kernel[(rows,)](x, y, cols, x.stride(0), y.stride(0))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = new_like(dy) if out is None else out
    rows, cols = dy.shape
    softmax_backward_kernel[(rows,)](dy, y, dx, cols, dy.stride(0), y.stride(0), dx.stride(0))
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        # dy may be expanded or transposed
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
