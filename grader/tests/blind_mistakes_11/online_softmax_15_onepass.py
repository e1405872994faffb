# labs/lab2_online_softmax/online_softmax.py | right | a row that fits one block takes a constexpr path without loops and second loads; longer rows keep one maximum and one sum for each lane, joined after the loop.
"""Softmax of rows: in registers where a row fits, online where it does not."""

import torch
import triton
import triton.language as tl

IN_REGISTERS = 8192
STREAMED = 2048


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, FITS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if FITS:
        x = tl.load(x_row + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_row + lanes, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        ms = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
        ds = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            new = tl.maximum(ms, x)
            shift = tl.where(new == -float("inf"), 0.0, new)
            ds = ds * tl.exp(ms - shift) + tl.exp(x - shift)
            ms = new
        m = tl.max(ms, axis=0)  # finite: each row has a finite value
        d = tl.sum(ds * tl.exp(ms - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, FITS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    if FITS:
        dy = tl.load(dy_row + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            products += dy * y
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def plan(n_cols: int) -> dict:
    """Constants and warps of a launch."""
    fits = n_cols <= IN_REGISTERS
    block = triton.next_power_of_2(n_cols) if fits else STREAMED
    return {"FITS": fits, "BLOCK": block, "num_warps": 4 if block <= 2048 else 8}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **plan(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **plan(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := softmax_forward(x))
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
