# labs/lab2_online_softmax/online_softmax.py | right | Right. Unusual: BLOCK comes from `triton.heuristics`; all blocks but the last are read without a mask, the last block of a row stays in registers and is stored first, and the second sweep goes from the end of the row to its start. Forward and gradient are built alike.
"""Softmax over rows of any length and its gradient; the last block of a row stays in registers."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


def block_for(n_cols: int) -> int:
    """Return the width of a block: the next power of two, at most WIDEST."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def warps_for(n_cols: int, columns: int, low: int, high: int) -> int:
    """Return the number of warps if each has `columns` columns of a block."""
    return min(max(block_for(n_cols) // columns, low), high)


@triton.jit
def fold(x, m, d):
    """Return maximum and sum of a row after one more block, x, which may hold -inf alone."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.heuristics({"BLOCK": lambda args: block_for(args["n_cols"])})
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i: softmax of row i. All blocks before `tail` are full and need no mask."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    tail = (n_cols - 1) // BLOCK * BLOCK
    inside = tail + lanes < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, tail, BLOCK):
        x = tl.load(x_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        m, d = fold(x, m, d)
    last = tl.load(x_ptrs + tail, mask=inside, other=-float("inf")).to(tl.float32)
    m, d = fold(last, m, d)

    y = tl.exp(last - m) / d
    tl.store(y_ptrs + tail, y.to(y_ptr.dtype.element_ty), mask=inside)
    for done in range(0, tail, BLOCK):
        start = tail - BLOCK - done
        x = tl.load(x_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty))


@triton.heuristics({"BLOCK": lambda args: block_for(args["n_cols"])})
@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i: dx = y * (dy - s) for row i; the second sweep goes from the end of the row to its start."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    tail = (n_cols - 1) // BLOCK * BLOCK
    inside = tail + lanes < n_cols

    s = 0.0
    for start in range(0, tail, BLOCK):
        dy = tl.load(dy_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    dy_last = tl.load(dy_ptrs + tail, mask=inside, other=0.0).to(tl.float32)
    y_last = tl.load(y_ptrs + tail, mask=inside, other=0.0).to(tl.float32)
    s += tl.sum(dy_last * y_last, axis=0)

    dx = y_last * (dy_last - s)
    tl.store(dx_ptrs + tail, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    for done in range(0, tail, BLOCK):
        start = tail - BLOCK - done
        dy = tl.load(dy_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    warps = warps_for(n_cols, 2048, 4, 8)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    warps = warps_for(n_cols, 512, 4, 32)
    softmax_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=warps
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
