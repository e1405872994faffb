# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `exp_below`, `tl.exp((x - top) * LOG2E)` should be `tl.exp2((x - top) * LOG2E)` (or `tl.exp(x - top)`). All powers have base e ** 1.4427, so rows sum to 1 but are too sharp: softmax of 1.4427 * x. Right only for one column, constant rows, and values so far apart that exp gives 0 or 1.
"""Softmax with persistent programs that take row after row, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 2048  # more than are resident at a time; each takes every 2048th row

LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def exp_below(x, top):
    """e to the power of x - top. The difference is taken first: large numbers have no digits to lose."""
    return tl.exp((x - top) * LOG2E)


@triton.heuristics({"ONE_BLOCK": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d; program p owns rows p, p + P, p + 2 P, ... of a launch of P programs."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if ONE_BLOCK:
            # The row stays in registers: there is nothing to carry, and nothing to read again.
            x = tl.load(x_row + lanes, mask=lanes < n_cols, other=NEG_INF).to(tl.float32)
            terms = exp_below(x, tl.max(x, axis=0))
            y = terms / tl.sum(terms, axis=0)
            tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
        else:
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=NEG_INF, eviction_policy="evict_last")
                x = x.to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == NEG_INF, 0.0, m_new)
                d = d * exp_below(m, shift) + tl.sum(exp_below(x, shift), axis=0)
                m = m_new
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=NEG_INF, eviction_policy="evict_first")
                y = exp_below(x.to(tl.float32), m) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); rows are shared out as in the forward pass."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
            s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = min(max(block // 1024, 1), 8)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 16)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
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
