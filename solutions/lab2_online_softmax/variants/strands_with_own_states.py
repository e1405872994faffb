"""EXPECT PASS from softmax_forward and softmax_backward and softmax: a state for each strand.

The pairs form a monoid, so the strands are joined by one tl.reduce at the end, and not once a block.
"""

import torch
import triton
import triton.language as tl

BLOCK = 4096
STRANDS = tl.constexpr(32)
LOWEST = tl.constexpr(-3.0e38)  # stands in for "nothing seen yet"; finite, so that no inf - inf occurs


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """Joins two partial softmax sums."""
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    y_row = y_ptr + row.to(tl.int64) * stride_y
    m = tl.full((STRANDS,), LOWEST, dtype=tl.float32)
    d = tl.zeros((STRANDS,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK // STRANDS)[:, None] * STRANDS + tl.arange(0, STRANDS)[None, :]
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - higher) + tl.sum(tl.exp(x - higher[None, :]), axis=0)
        m = higher
    top, total = tl.reduce((m, d), axis=0, combine_fn=join)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0).to(tl.float32)
        products = tl.fma(dy, y, products)
    s = tl.sum(products, axis=0)
    for start in tl.range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def launch_shape(n_cols: int) -> dict[str, int]:
    """BLOCK and num_warps for a row of n_cols columns."""
    block = max(32, min(BLOCK, triton.next_power_of_2(n_cols)))
    return {"BLOCK": block, "num_warps": max(1, min(8, block // 512))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    rows, cols = x.shape
    out = torch.empty_like(x) if out is None else out
    forward_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), **launch_shape(cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    rows, cols = y.shape
    out = torch.empty_like(dy) if out is None else out
    strides = dy.stride(0), y.stride(0), out.stride(0)
    backward_kernel[(rows,)](dy, y, out, cols, *strides, **launch_shape(cols))
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
