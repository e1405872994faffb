# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax: a row that fits one block stays in registers, a longer one is swept twice."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, FITS: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if FITS:
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_row + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            x = tl.load(
                x_row + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            x = tl.load(
                x_row + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty)
            tl.store(y_row + start + cols, y, mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    if FITS:
        inside = cols < n_cols
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        weighted = y * tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        dx = weighted - y * tl.sum(weighted, axis=0)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            y = tl.load(y_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            y = tl.load(y_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        FITS=n_cols <= block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
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
        FITS=n_cols <= block,
        num_warps=clamp(block // 512, 4, 32),
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
        # rows may lie any number of elements apart, only columns must be neighbours
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y, out=torch.empty_like(y))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
