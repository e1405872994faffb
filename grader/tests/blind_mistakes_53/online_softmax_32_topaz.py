# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_gradient_kernel `s_lane += y * p` multiplies by y twice, since p is y * dy already; it should be `s_lane += p`. s is the sum of y * y * dy, so dx is wrong wherever a row has more than one column (and y is not 0 or 1).
"""Softmax with a maximum for each lane, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl


def width(n_cols: int, widest: int) -> int:
    """Columns of one block."""
    return min(triton.next_power_of_2(n_cols), widest)


@triton.heuristics(
    {
        "BLOCK": lambda args: width(args["n_cols"], 2048),
        "num_warps": lambda args: max(width(args["n_cols"], 2048) // 512, 1),
    }
)
@triton.jit
def lanewise_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Each lane has a maximum and a sum of its own; they are brought together after the last block."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)
    m_lane = tl.full([BLOCK], -float("inf"), tl.float32)
    d_lane = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_next = tl.maximum(m_lane, x)
        shift = tl.where(m_next == -float("inf"), 0.0, m_next)
        d_lane = d_lane * tl.exp(m_lane - shift) + tl.exp(x - shift)
        m_lane = m_next
    m = tl.max(m_lane, axis=0)
    d = tl.sum(d_lane * tl.exp(m_lane - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def products(dy_ptr, y_ptr, col, n_cols, KEEP: tl.constexpr):
    """A block of y, and of y * dy."""
    dy = tl.load(dy_ptr + col, mask=col < n_cols, other=0.0, eviction_policy=KEEP).to(tl.float32)
    y = tl.load(y_ptr + col, mask=col < n_cols, other=0.0, eviction_policy=KEEP).to(tl.float32)
    return y, y * dy


@triton.heuristics(
    {
        "BLOCK": lambda args: width(args["n_cols"], 4096),
        "num_warps": lambda args: max(width(args["n_cols"], 4096) // 512, 1),
    }
)
@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)
    s_lane = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        y, p = products(dy_ptr, y_ptr, start + lane, n_cols, "evict_last")
        s_lane += y * p
    s = tl.sum(s_lane, axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        y, p = products(dy_ptr, y_ptr, col, n_cols, "evict_first")
        dx = p - y * s
        tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; x and `out` may have gaps between their rows."""
    if out is None:
        out = torch.empty(x.size(0), x.size(1), dtype=x.dtype, device=x.device)
    lanewise_softmax_kernel[(x.size(0),)](x, out, x.size(1), x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient for x, from dy and from y = softmax_forward(x)."""
    if out is None:
        out = torch.empty(dy.size(0), dy.size(1), dtype=dy.dtype, device=dy.device)
    softmax_gradient_kernel[(dy.size(0),)](
        dy, y, out, dy.size(1), dy.stride(0), y.stride(0), out.stride(0)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Keeps y alone."""

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
