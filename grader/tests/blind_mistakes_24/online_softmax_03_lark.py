# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward: dy is copied only if dy.stride(0) < dy.size(1), which misses layouts whose columns are apart but whose rows are far apart, such as every second column of a wider matrix; the kernel then reads neighbouring elements as columns and the gradient is wrong. It should test dy.stride(1) != 1 or always take dy.contiguous().
"""Online softmax with an autotuned block width."""

import torch
import triton
import triton.language as tl

# about 512 columns for each warp, at most 16 warps
FORWARD_CONFIGS = [triton.Config({"BLOCK": b}, num_warps=min(16, b // 512)) for b in (1024, 4096, 16384)]
BACKWARD_CONFIGS = [triton.Config({"BLOCK": b}, num_warps=min(16, b // 512)) for b in (1024, 2048, 8192)]


@triton.autotune(configs=FORWARD_CONFIGS, key=["n_cols"])
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """First sweep: maximum and sum; second sweep: y."""
    NEG: tl.constexpr = -float("inf")
    row = tl.program_id(axis=0).to(tl.int64)
    x_at = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_at = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    col = tl.arange(0, BLOCK)

    best = NEG
    norm = 0.0
    for k in range(0, n_cols, BLOCK):
        v = tl.load(x_at + k, mask=col + k < n_cols, other=NEG, eviction_policy="evict_last").to(tl.float32)
        now = tl.maximum(best, tl.max(v, axis=0))
        ref = tl.where(now > NEG, now, 0.0)
        norm = norm * tl.exp(best - ref) + tl.sum(tl.exp(v - ref), axis=0)
        best = now

    for k in range(0, n_cols, BLOCK):
        v = tl.load(x_at + k, mask=col + k < n_cols, other=NEG, eviction_policy="evict_first").to(tl.float32)
        p = tl.exp(v - best) / norm
        tl.store(y_at + k, p.to(y_ptr.dtype.element_ty), mask=col + k < n_cols)


@triton.autotune(configs=BACKWARD_CONFIGS, key=["n_cols"])
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy)."""
    row = tl.program_id(axis=0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    dy_at = dy_ptr + row * stride_dy + col
    y_at = y_ptr + row * stride_y + col
    dx_at = dx_ptr + row * stride_dx + col

    dot = 0.0
    for k in range(0, n_cols, BLOCK):
        keep = col + k < n_cols
        g = tl.load(dy_at + k, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_at + k, mask=keep, other=0.0).to(tl.float32)
        dot += tl.sum(g * p, axis=0)

    for k in range(0, n_cols, BLOCK):
        keep = col + k < n_cols
        g = tl.load(dy_at + k, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_at + k, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_at + k, (p * (g - dot)).to(dx_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and out may be padded."""
    if out is None:
        out = x.new_empty(x.shape)
    online_softmax_kernel[(x.size(0),)](x, out, x.size(1), x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax from dy and the result y; rows may be padded."""
    if out is None:
        out = dy.new_empty(dy.shape)
    softmax_backward_kernel[(dy.size(0),)](
        dy, y, out, dy.size(1), dy.stride(0), y.stride(0), out.stride(0)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax and its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Keeps y, all that the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Padded rows are fine as they are, so copy only if the rows of dy are not laid out one after the other."""
        (y,) = ctx.saved_tensors
        if dy.stride(0) < dy.size(1):  # expanded or transposed
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
