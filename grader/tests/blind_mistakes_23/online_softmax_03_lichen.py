# labs/lab2_online_softmax/online_softmax.py | corner | finish(): the divisor is d + EPS with EPS = 1e-6 in place of d, so y is too small by up to 1e-6 of itself: wrong in fp32 where d is near 1 (rows of one or few columns, rows with one dominant value), invisible in fp16 and bf16 and where d is large. It should be tl.exp(x - m) / d, as d is at least 1.
"""Online softmax: whole blocks without a mask first, then the rest of the row with one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
EPS = tl.constexpr(1e-6)


@triton.jit
def fold(m, d, x):
    """m and d after the values x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def finish(x, m, d):
    """The softmax of the values x of a row with maximum m and sum d."""
    return tl.exp(x - m) / (d + EPS)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = softmax(x[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    edge = n_cols // BLOCK * BLOCK  # the first column after the whole blocks
    rest = edge + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, edge, BLOCK):
        x = tl.load(x_row + start + lanes, eviction_policy="evict_last").to(tl.float32)
        m, d = fold(m, d, x)
    tail = tl.load(x_row + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, tail)
    for start in range(0, edge, BLOCK):
        x = tl.load(x_row + start + lanes, eviction_policy="evict_first").to(tl.float32)
        tl.store(y_row + start + lanes, finish(x, m, d).to(y_ptr.dtype.element_ty))
    tl.store(y_row + rest, finish(tail, m, d).to(y_ptr.dtype.element_ty), mask=rest < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s); the rest of the row stays in registers between both steps."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    edge = n_cols // BLOCK * BLOCK
    rest = edge + lanes
    tail_dy = tl.load(dy_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    tail_y = tl.load(y_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(tail_dy * tail_y, axis=0)
    for start in range(0, edge, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, edge, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))
    tl.store(dx_row + rest, (tail_y * (tail_dy - s)).to(dx_ptr.dtype.element_ty), mask=rest < n_cols)


def pick(n_cols: int, most: int) -> dict:
    """Block and warps for rows of n_cols."""
    block = max(min(triton.next_power_of_2(n_cols), most), 64)
    return {"BLOCK": block, "num_warps": 8 if block > 2048 else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    options = pick(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    options = pick(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
