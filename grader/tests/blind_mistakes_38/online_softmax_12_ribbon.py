# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax of rows: a row of up to 16384 columns stays in registers, a longer one comes in blocks, twice."""

import torch
import triton
import triton.language as tl

IN_REGISTERS = 16384  # the longest row that is held at once, forward
IN_REGISTERS_BACKWARD = 8192
BLOCK_OF_LONG_ROW = 8192
BLOCK_OF_LONG_ROW_BACKWARD = 4096


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, HELD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if HELD:
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
            top = tl.max(x, axis=0)
            # A block of nothing but -inf adds nothing.
            if top > -float("inf"):
                m_new = tl.maximum(m, top)
                d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
                m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, HELD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if HELD:
        inside = lanes < n_cols
        dy = tl.load(dy_row + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def warps_for(block: int, columns_each: int) -> int:
    """One warp for each so many columns; block is a power of two, so this is one."""
    return min(16, max(1, block // columns_each))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    held = n_cols <= IN_REGISTERS
    block = triton.next_power_of_2(n_cols) if held else BLOCK_OF_LONG_ROW
    forward_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        HELD=held,
        num_warps=warps_for(block, 1024),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    held = n_cols <= IN_REGISTERS_BACKWARD
    block = triton.next_power_of_2(n_cols) if held else BLOCK_OF_LONG_ROW_BACKWARD
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        HELD=held,
        num_warps=warps_for(block, 512),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
