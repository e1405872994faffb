# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Each lane keeps a maximum and a sum of its own columns, and `tl.reduce` with an own combine function on pairs (m, d) merges the lanes once for each row; finite lowest number as the start in place of -inf, exp2 of (x - m) * log2(e), options of the launch from a dict.
"""Softmax where each lane runs the online recurrence on its own columns, and tl.reduce merges the lanes.

Pairs (m, d) of a maximum and a sum relative to it form a monoid: merge() below is associative, and (LOWEST, 0)
changes nothing. So one reduction for each row is enough, whatever its length.
"""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """The pair of two stretches of a row from the pair of each."""
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp2((m_a - m) * LOG2E) + d_b * tl.exp2((m_b - m) * LOG2E)


@triton.jit
def plus(a, b):
    """For tl.reduce."""
    return a + b


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    """Program i owns row i, lane j columns j, j + LANES, j + 2 * LANES and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, LANES)
    m = tl.full((LANES,), LOWEST, tl.float32)
    d = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = lanes + start
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        # A lane that meets -inf, or no column, keeps its finite m, and adds exp2(-inf) = 0.
        higher = tl.maximum(m, x)
        d = d * tl.exp2((m - higher) * LOG2E) + tl.exp2((x - higher) * LOG2E)
        m = higher
    top, total = tl.reduce((m, d), axis=0, combine_fn=merge)
    for start in range(0, n_cols, LANES):
        cols = lanes + start
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2E) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, LANES: tl.constexpr):
    """Program i owns row i of dx = y * (dy - s); the products, too, are summed lane by lane first."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, LANES)
    products = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = lanes + start
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    s = tl.reduce(products, axis=0, combine_fn=plus)
    for start in range(0, n_cols, LANES):
        cols = lanes + start
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def lanes_and_warps(n_cols: int, most: int, per_warp: int) -> dict:
    """Options of a launch: lanes, at most `most`, and a warp for each per_warp of them."""
    lanes = min(triton.next_power_of_2(n_cols), most)
    return {"LANES": lanes, "num_warps": max(lanes // per_warp, 1)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    options = lanes_and_warps(n_cols, 4096, 512)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    options = lanes_and_warps(n_cols, 8192, 512)
    backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options)
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
