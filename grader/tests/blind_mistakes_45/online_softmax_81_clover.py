# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: `triton.heuristics` choose the block and a compile-time branch: a row of up to 8192 columns is read once and kept in registers, a longer one takes two sweeps, with sums kept lane by lane relative to one scalar maximum; exp2.
"""Softmax and its gradient with heuristics: a row in one block is read once, a longer one in two sweeps."""

import torch
import triton
import triton.language as tl

WIDEST = 8192  # columns of a block

LOG2E = tl.constexpr(1.4426950408889634)
MINUS_INF = tl.constexpr(float("-inf"))


@triton.jit
def _shift_of(m):
    """What is subtracted from the exponents: the maximum, or 0 where there is none yet."""
    return tl.where(m == MINUS_INF, 0.0, m)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "ONE_BLOCK": lambda args: args["n_cols"] <= WIDEST,
    }
)
@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    offs = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=MINUS_INF).to(tl.float32)
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        # The sum is kept lane by lane, all lanes relative to one maximum.
        m = tl.full((), MINUS_INF, tl.float32)
        d = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(
                x_ptr + cols, mask=cols < n_cols, other=MINUS_INF, eviction_policy="evict_last"
            ).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = _shift_of(m_new)
            d = d * tl.exp2((m - shift) * LOG2E) + tl.exp2((x - shift) * LOG2E)
            m = m_new
        total = tl.sum(d, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(
                x_ptr + cols, mask=cols < n_cols, other=MINUS_INF, eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / total
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "ONE_BLOCK": lambda args: args["n_cols"] <= WIDEST,
    }
)
@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    offs = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        dy = tl.load(dy_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        lanes = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            inside = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            lanes += dy.to(tl.float32) * y.to(tl.float32)
        s = tl.sum(lanes, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            inside = cols < n_cols
            dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def warps_of(n_cols: int, columns: int) -> int:
    """Warps of a program, of which each has so many columns of a block; 16 at most."""
    return min(max(min(triton.next_power_of_2(n_cols), WIDEST) // columns, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), num_warps=warps_of(n_cols, 1024)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, columns contiguous."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=warps_of(n_cols, 512)
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
