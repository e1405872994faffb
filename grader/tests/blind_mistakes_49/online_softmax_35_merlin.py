# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_forward`, `EVEN=n_cols % 16 == 0` leaves out all masks where n_cols is a multiple of 16; it must be `EVEN=n_cols % block == 0`. Shows for multiples of 16 that are no multiple of the block (48, 1536, 2608, 24576, 40000): loads and stores run behind the end of the row; odd sizes, powers of two and multiples of 16384 are right.
"""Softmax by a fixed number of programs, each of which takes row after row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PROGRAMS = 132 * 16  # enough to fill the multiprocessors of an H200


@triton.jit
def fetch(ptr, cols, n_cols, EVEN: tl.constexpr):
    """A block of a row in fp32; whole blocks need no mask."""
    if EVEN:
        x = tl.load(ptr + cols)
    else:
        x = tl.load(ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32)


@triton.jit
def put(ptr, cols, n_cols, y, EVEN: tl.constexpr):
    """Store a block of a row, in the dtype of the row."""
    y = y.to(ptr.dtype.element_ty)
    if EVEN:
        tl.store(ptr + cols, y, eviction_policy="evict_first")
    else:
        tl.store(ptr + cols, y, mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def persistent_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, EVEN: tl.constexpr
):
    """Program i takes the rows i, i + p, i + 2 p, ..., where p is the number of programs."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lanes, n_cols, EVEN)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lanes, n_cols, EVEN)
            put(y_row, start + lanes, n_cols, tl.exp(x - m) / d, EVEN)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    persistent_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        EVEN=n_cols % 16 == 0,
        num_warps=8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; it goes to `out` where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
