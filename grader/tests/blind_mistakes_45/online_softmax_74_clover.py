# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `softmax_backward`, helper `_through_jacobian`: `others = p * total` counts the own term a second time, as `own = p * (1.0 - p) * g` already has it. It should be `p * (total - p * g)` (or `own = p * g`). dx is off by `-p * p * g` in all cases; least visible in bf16 rows so long that every p is small.
"""Softmax over rows, kept in registers where a row fits one block, and its gradient from the Jacobian."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def _max_and_sum(x_ptr, n_cols, BLOCK: tl.constexpr):
    """Maximum of a row, and the sum of exp(x - maximum), in one sweep."""
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def _forward(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, SHORT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    if SHORT:
        cols = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        m, d = _max_and_sum(x_ptr, n_cols, BLOCK)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def _pair(g_ptr, p_ptr, cols, n_cols):
    """Both factors of the same columns in fp32, 0 past the end of the row."""
    g = tl.load(g_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    p = tl.load(p_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return g, p


@triton.jit
def _through_jacobian(g, p, total):
    """Diagonal p * (1 - p) and off-diagonal -p * p_j of the Jacobian, applied to g."""
    own = p * (1.0 - p) * g
    others = p * total
    return own - others


@triton.jit
def _backward(
    g_ptr, p_ptr, dx_ptr, n_cols, stride_g, stride_p, stride_dx, BLOCK: tl.constexpr, SHORT: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    g_ptr += row * stride_g
    p_ptr += row * stride_p
    dx_ptr += row * stride_dx
    if SHORT:
        cols = tl.arange(0, BLOCK)
        g, p = _pair(g_ptr, p_ptr, cols, n_cols)
        dx = _through_jacobian(g, p, tl.sum(g * p, axis=0))
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            g, p = _pair(g_ptr, p_ptr, start + tl.arange(0, BLOCK), n_cols)
            total += tl.sum(g * p, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            g, p = _pair(g_ptr, p_ptr, cols, n_cols)
            dx = _through_jacobian(g, p, total)
            tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def _meta(n_cols: int, per_warp: int) -> dict:
    """What the launches of both kernels have in common."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "SHORT": n_cols <= block, "num_warps": min(max(block // per_warp, 1), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written to `out` where it is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _forward[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), **_meta(x.shape[1], 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, written to `out` where it is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    _backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **_meta(n_cols, 512)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
