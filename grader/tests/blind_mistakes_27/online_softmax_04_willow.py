# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward: `dx = dy.contiguous()` is dy itself where dy is contiguous already, and `softmax_backward(dx, y, out=dx)` then writes the gradient over the incoming gradient; all numbers are right, but "Inputs are read-only" is broken: a contiguous dy of the caller, or one that autograd also hands to another branch, is changed by the backward pass of softmax(). Expanded, transposed, spread or padded dy are copied first and stay unchanged; softmax_forward and softmax_backward are right. It should give no out=: softmax_backward(dy.contiguous(), y)
"""Softmax over rows of any length, its gradient, and both as an autograd function; short rows are read once."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    FITS: tl.constexpr,  # whether one block holds a whole row
    BLOCK: tl.constexpr,
):
    """Softmax of row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if FITS:
        inside = lanes < n_cols
        x = tl.load(x_row_ptr + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(
                x_row_ptr + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(
                x_row_ptr + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    FITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if FITS:
        inside = lanes < n_cols
        dy = tl.load(dy_row_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(
                dy_row_ptr + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            y = tl.load(
                y_row_ptr + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last"
            ).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(
                dy_row_ptr + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.load(
                y_row_ptr + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first"
            ).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        FITS=n_cols <= block,
        BLOCK=block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        FITS=n_cols <= block,
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
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
        y = ctx.saved_tensors[0]
        dx = dy.contiguous()
        return softmax_backward(dx, y, out=dx)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
