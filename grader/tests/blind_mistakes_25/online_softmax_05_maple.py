# labs/lab2_online_softmax/online_softmax.py | corner | row_major(), `t.stride(0) >= t.size(1)`: only the row stride is looked at, so a gradient whose rows are far enough apart but whose columns are not contiguous (every second column of a wider matrix, or a column of a wide matrix expanded) is not copied and is read with column stride 1; the gradient of softmax() is wrong for it. It should also ask for t.stride(1) == 1, or simply take dy.contiguous().
"""Softmax over rows, forward and backward.

A row of up to WHOLE_ROW columns is held in registers and read once; a longer row is read twice, block by block.
"""

import torch
import triton
import triton.language as tl

WHOLE_ROW = 8192
LONG_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    if WHOLE:
        # One block is the whole row, so its maximum is final at once.
        keep = lane < n_cols
        x = tl.load(x_row_ptr + lane, mask=keep, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row_ptr + lane, y.to(y_ptr.dtype.element_ty), mask=keep)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = start + lane < n_cols
            x = tl.load(x_row_ptr + start + lane, mask=keep, other=-float("inf")).to(tl.float32)
            m_next = tl.maximum(m, tl.max(x, axis=0))
            finite = tl.where(m_next > -float("inf"), m_next, 0.0)
            d = d * tl.exp(m - finite) + tl.sum(tl.exp(x - finite), axis=0)
            m = m_next
        for start in range(0, n_cols, BLOCK):
            keep = start + lane < n_cols
            x = tl.load(x_row_ptr + start + lane, mask=keep, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    if WHOLE:
        keep = lane < n_cols
        dy = tl.load(dy_row_ptr + lane, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + lane, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row_ptr + lane, dx.to(dx_ptr.dtype.element_ty), mask=keep)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = start + lane < n_cols
            dy = tl.load(dy_row_ptr + start + lane, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + start + lane, mask=keep, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            keep = start + lane < n_cols
            dy = tl.load(dy_row_ptr + start + lane, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + start + lane, mask=keep, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + start + lane, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def options(n_cols: int, columns_per_warp: int) -> dict:
    """The keywords of a launch for rows of n_cols columns."""
    whole = n_cols <= WHOLE_ROW
    block = triton.next_power_of_2(n_cols) if whole else LONG_BLOCK
    warps = 1
    while warps < 16 and warps * columns_per_warp < block:
        warps *= 2
    return {"BLOCK": block, "WHOLE": whole, "num_warps": warps}


def row_major(t: torch.Tensor) -> torch.Tensor:
    """t itself where its rows lie one behind the other, with or without padding; else a copy.

    The kernel takes any row stride, so a padded gradient needs no copy. In an expanded or transposed one the
    rows overlap.
    """
    return t if t.stride(0) >= t.size(1) else t.contiguous()


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options(n_cols, 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options(n_cols, 512)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(row_major(dy), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
