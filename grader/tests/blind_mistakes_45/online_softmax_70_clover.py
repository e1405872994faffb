# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `softmax_backward`, kernel `_softmax_grad_kernel`: `total += tl.sum(g.to(tl.float32), axis=0)` with `dx = g - y * total` is the gradient of log-softmax. It should sum `g * y` and store `y * (g - total)`. Wrong in all cases but rows of one column; shows in `softmax_backward` and `softmax`.
"""Row softmax in base 2 with an online maximum, its gradient, and the autograd function around both."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _fold(m, d, x):
    """Fold one block of values into the running maximum and the running sum."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    return m_new, d_new


@triton.jit
def _softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m, d = _fold(m, d, x)
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) * scale
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def _softmax_grad_kernel(
    g_ptr, y_ptr, dx_ptr, n_cols, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    g_ptr += row * stride_g
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(g_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        total += tl.sum(g.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(g_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = g - y * total
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def _width(n_cols: int, widest: int) -> int:
    """A power of two that holds a row, or the widest block."""
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = _width(n_cols, FORWARD_BLOCK)
    _softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=min(max(block // 1024, 1), 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = _width(n_cols, BACKWARD_BLOCK)
    _softmax_grad_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
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
