# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient from small device functions, with a short cut for rows that fit one block."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def fetch(row_ptr, cols, n_cols, other, POLICY: tl.constexpr):
    """Part of a row in fp32; lanes past the end hold `other`."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other, eviction_policy=POLICY).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Part of a row, rounded to the dtype of the row."""
    tl.store(
        row_ptr + cols,
        values.to(row_ptr.dtype.element_ty),
        mask=cols < n_cols,
        eviction_policy="evict_first",
    )


@triton.jit
def fold(m, d, x):
    """Maximum and sum after one more block x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    SINGLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i owns row i; a SINGLE block stays in registers between its sum and its store."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if SINGLE:
        x = fetch(x_row, lanes, n_cols, -float("inf"), "evict_first")
        weights = tl.exp(x - tl.max(x, axis=0))
        put(y_row, lanes, n_cols, weights / tl.sum(weights, axis=0))
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            m, d = fold(m, d, fetch(x_row, start + lanes, n_cols, -float("inf"), "evict_last"))
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lanes, n_cols, -float("inf"), "evict_first")
            put(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    SINGLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * dy - y * s with s = sum y * dy, as one product and one fused multiply-add."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if SINGLE:
        y = fetch(y_row, lanes, n_cols, 0.0, "evict_first")
        terms = y * fetch(dy_row, lanes, n_cols, 0.0, "evict_first")
        put(dx_row, lanes, n_cols, terms - y * tl.sum(terms, axis=0))
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            y = fetch(y_row, start + lanes, n_cols, 0.0, "evict_last")
            s += tl.sum(y * fetch(dy_row, start + lanes, n_cols, 0.0, "evict_last"), axis=0)
        for start in range(0, n_cols, BLOCK):
            y = fetch(y_row, start + lanes, n_cols, 0.0, "evict_first")
            terms = y * fetch(dy_row, start + lanes, n_cols, 0.0, "evict_first")
            put(dx_row, start + lanes, n_cols, terms - y * s)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_options(n_cols: int, widest: int, columns_per_warp: int, most_warps: int) -> dict:
    """Keywords of a launch for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {
        "SINGLE": n_cols <= block,
        "BLOCK": block,
        "num_warps": clamp(block // columns_per_warp, 1, most_warps),
    }


def target_like(x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """The tensor to write to: `out`, or a new contiguous one."""
    if out is not None:
        return out
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    y = target_like(x, out)
    options = block_options(n_cols, FORWARD_BLOCK, columns_per_warp=1024, most_warps=8)
    online_softmax_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), **options)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = y.shape
    dx = target_like(y, out)
    options = block_options(n_cols, BACKWARD_BLOCK, columns_per_warp=512, most_warps=32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), **options
    )
    return dx


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
