# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax: a row that fits one block stays in registers, a longer one is read twice."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Program i owns row i; WHOLE says that a row is not longer than BLOCK."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        inside = lanes < n_cols
        x = tl.load(x_row + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_block = tl.max(x, axis=0)
            if m_block > -float("inf"):  # a block of -inf alone changes nothing
                m_new = tl.maximum(m, m_block)
                d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
                m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx,
    BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Program i owns row i of dx = p - y * sum(p), where p = y * dy."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        inside = lanes < n_cols
        y = tl.load(y_row + lanes, mask=inside, other=0.0).to(tl.float32)
        p = y * tl.load(dy_row + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = p - y * tl.sum(p, axis=0)
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            sums += y * tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s = tl.sum(sums, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            p = y * tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = p - y * s
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def plan(n_cols: int, widest: int, share: int):
    """Launch options for rows of n_cols columns, one warp for each `share` columns of a block."""
    block = clamp(triton.next_power_of_2(n_cols), 1, widest)
    return {"BLOCK": block, "WHOLE": n_cols <= block, "num_warps": clamp(block // share, 1, 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written through the row stride of out."""
    assert x.dim() == 2, "a matrix is expected"
    if out is None:
        out = torch.empty(x.size(), dtype=x.dtype, device=x.device)
    rows, cols = x.shape
    options = plan(cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, written through the row stride of out."""
    assert dy.shape == y.shape, "dy and y are of one shape"
    if out is None:
        out = torch.empty(y.size(), dtype=y.dtype, device=y.device)
    rows, cols = y.shape
    options = plan(cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), **options
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Forward and backward in one."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
