# labs/lab2_online_softmax/online_softmax.py | error | In `forward_kernel`, `peak = tl.full((), -float("inf"), dtype=src.dtype.element_ty)` should have `dtype=tl.float32`: in the loop it is assigned an fp32 value, and Triton refuses a loop-carried variable whose type changes. Does not compile for fp16 and bf16; fp32 is right, and the interpreter, which does not check the types of loops, gives right values for fp16 as well.
"""Online softmax in base 2 over rows of any length, its gradient, and both as an autograd function."""

import math

import torch
import triton
import triton.language as tl

WIDEST_FORWARD = 16384
WIDEST_BACKWARD = 16384


@triton.jit
def row_start(ptr, stride):
    """Where the row of this program begins."""
    return ptr + tl.program_id(axis=0).to(tl.int64) * stride


@triton.jit
def forward_kernel(
    src,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    dst,  # like src
    n_cols,
    src_stride,
    dst_stride,
    log2_e: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row: peak and norm in a first sweep, the result in a second one."""
    src = row_start(src, src_stride)
    dst = row_start(dst, dst_stride)
    lanes = tl.arange(0, BLOCK)
    peak = tl.full((), -float("inf"), dtype=src.dtype.element_ty)
    norm = tl.full((), 0.0, dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        raised = tl.maximum(peak, tl.max(x, axis=0))
        shift = tl.where(raised == -float("inf"), 0.0, raised)
        norm = norm * tl.exp2((peak - shift) * log2_e) + tl.sum(tl.exp2((x - shift) * log2_e), axis=0)
        peak = raised
    factor = 1.0 / norm
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - peak) * log2_e) * factor
        tl.store(dst + cols, y.to(dst.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def backward_kernel(
    dy,
    y,
    dx,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    """One row: the sum of y * dy in a first sweep, dx in a second one."""
    dy = row_start(dy, dy_stride)
    y = row_start(y, y_stride)
    dx = row_start(dx, dx_stride)
    lanes = tl.arange(0, BLOCK)
    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        g = tl.load(dy + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dot += tl.sum(g * p, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        g = tl.load(dy + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        result = (p * (g - dot)).to(dx.dtype.element_ty)
        tl.store(dx + cols, result, mask=cols < n_cols, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST_FORWARD)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), log2_e=math.log2(math.e),
        BLOCK=block, num_warps=min(max(block // 1024, 1), 8),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST_BACKWARD)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=min(max(block // 512, 4), 32),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
