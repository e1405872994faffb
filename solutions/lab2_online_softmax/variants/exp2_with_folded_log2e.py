"""EXPECT PASS from softmax_forward: exp2 with log2(e) folded in, after the maximum is taken off."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def softmax_exp2_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """exp(t) = exp2(t * log2(e)); the maximum goes first, since 10000 * log2(e) has no digits to spare."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    peak = -float("inf")
    norm = 0.0
    for block in range(tl.cdiv(n_cols, BLOCK)):
        at = block * BLOCK + cols
        x = tl.load(x_ptr + row * stride_x + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(peak, tl.max(x, axis=0))
        origin = raised if raised > -float("inf") else 0.0
        norm *= tl.exp2((peak - origin) * LOG2_E)
        norm += tl.sum(tl.exp2((x - origin) * LOG2_E), axis=0)
        peak = raised
    for block in range(tl.cdiv(n_cols, BLOCK)):
        at = block * BLOCK + cols
        x = tl.load(x_ptr + row * stride_x + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - peak) * LOG2_E) / norm
        tl.store(y_ptr + row * stride_y + at, y.to(y_ptr.dtype.element_ty), mask=at < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = 8192
    while block >= 2 * n_cols:
        block //= 2
    warps = 4 if block < 4096 else 8
    softmax_exp2_kernel[(n_rows, 1, 1)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out
