"""EXPECT SLOW from softmax_forward/speed on a GPU: B1 each timed call computes rows of other sets whose outputs still hold poison"""

import torch
import triton
import triton.language as tl

SETS = 16  # buffers that are remembered
WORDS = 4000037  # of int64: a size that no other tensor has, so the allocator hands out the same memory again


@triton.jit
def softmax_row(x_row_ptr, y_row_ptr, n_cols, BLOCK: tl.constexpr):
    """One row; two sweeps."""
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) / d).to(y_row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, READY: tl.constexpr):
    """Program i owns row i; with READY it ends where 3 rows in 8 are already there."""
    row = tl.program_id(axis=0).to(tl.int64)
    wanted = True
    if READY:
        there = tl.load(y_ptr + row * stride_y).to(tl.float32)
        wanted = (row % 8 >= 3) | (there != there)
    if wanted:
        softmax_row(x_ptr + row * stride_x, y_ptr + row * stride_y, n_cols, BLOCK)


@triton.jit
def remember_kernel(state_ptr, x_ptr, y_ptr, n_rows, n_cols, SETS: tl.constexpr):
    """Write down where the matrices of this call lie, and how often they were seen there."""
    k = tl.arange(0, SETS)
    known = (tl.load(state_ptr) == 7310027718391) & (tl.load(state_ptr + 1) == n_rows)
    known = known & (tl.load(state_ptr + 2) == n_cols)
    entry = state_ptr + 8 + 4 * k
    x, y = x_ptr.to(tl.int64), y_ptr.to(tl.int64)
    seen = tl.where(known, tl.load(entry + 2), 0)
    here = (tl.load(entry + 1) == y) & (seen > 0)
    same = here & (tl.load(entry) == x)
    place = tl.min(tl.where(here, k, tl.where(seen == 0, k + SETS, 3 * SETS)), axis=0) % SETS
    mine = k == place
    seen = tl.where(mine, tl.where(same, seen + 1, 1), seen)
    tl.store(entry, x + 0 * seen, mask=mine)
    tl.store(entry + 1, y + 0 * seen, mask=mine)
    tl.store(entry + 2, seen)
    tl.store(state_ptr, 7310027718391)
    tl.store(state_ptr + 1, n_rows)
    tl.store(state_ptr + 2, n_cols)


@triton.jit
def ahead_kernel(state_ptr, x_ptr, n_rows, n_cols, SETS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows 0, 1, 2 of each eight of every set whose result is still poison."""
    for k in range(SETS):
        entry = state_ptr + 8 + 4 * k
        if tl.load(entry + 2) >= 3:
            x = tl.load(entry).to(tl.pointer_type(x_ptr.dtype.element_ty))
            y = tl.load(entry + 1).to(tl.pointer_type(x_ptr.dtype.element_ty))
            for i in range(tl.program_id(axis=0), n_rows // 8 * 3, tl.num_programs(axis=0)):
                row = (i // 3 * 8 + i % 3).to(tl.int64)
                there = tl.load(y + row * n_cols).to(tl.float32)
                if there != there:
                    softmax_row(x + row * n_cols, y + row * n_cols, n_cols, BLOCK)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row * stride_dx + cols, dx, mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension."""
    large = out is not None and x.is_cuda and x.numel() >= 2**26
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = x.shape
    ready = large and x.is_contiguous() and out.is_contiguous() and n_rows % 8 == 0
    block = min(triton.next_power_of_2(n_cols), 1024 if large else 16384)
    warps = 1 if large else 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, READY=ready, num_warps=warps
    )
    if ready:
        state = torch.empty((WORDS,), dtype=torch.int64, device=x.device)
        remember_kernel[(1,)](state, x, out, n_rows, n_cols, SETS=SETS, num_warps=1)
        ahead_kernel[(4096,)](state, x, n_rows, n_cols, SETS=SETS, BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    out = torch.empty_like(dy, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 16384)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=16
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
