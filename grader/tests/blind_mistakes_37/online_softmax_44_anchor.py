# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In softmax_forward each program gets `n_rows // programs` rows, rounded down, so the last n_rows % programs rows are never written; shows where n_rows is above 132 and no multiple of 132 (149 or 1000 rows). It should be triton.cdiv(n_rows, programs), with rows at n_rows and above left out in the kernel. (2) In read_block, used by the forward kernel, lanes past the end of the row become -1e9 and not -inf; shows in fp32 and bf16 where n_cols is no multiple of BLOCK and all of the row lies at about -1e9 or below (down to -1e28 is allowed): these lanes then are the maximum and the sum, and the row comes out as 0 (or too small). It should be -inf.
"""Softmax with a fixed number of programs, each of which works through its share of the rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # one for each multiprocessor of an H200
MAX_BLOCK = 8192


@triton.jit
def read_block(row_ptr, cols, n_cols):
    """These columns of a row in fp32; lanes past its end must not count."""
    inside = cols < n_cols
    x = tl.load(row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, x, -1e9)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    rows_per_program,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i owns rows_per_program rows that follow one another."""
    first = tl.program_id(0).to(tl.int64) * rows_per_program
    lanes = tl.arange(0, BLOCK)
    for i in range(0, rows_per_program):
        x_row = x_ptr + (first + i) * stride_x
        y_row = y_ptr + (first + i) * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = read_block(x_row, start + lanes, n_cols)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            # A block of -inf alone, before any number: 0 is as good a shift as any.
            safe = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = read_block(x_row, start + lanes, n_cols)
            y = tl.exp(x - m) / d
            tl.store(
                y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=start + lanes < n_cols
            )


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
):
    """Program i owns row i: the sum of y * dy first, then dx."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    weighted = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        weighted += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * dy - y * weighted
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def settings(n_cols: int) -> dict:
    """Block and warps for rows of this length."""
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    return {"BLOCK": block, "num_warps": 16 if block >= 8192 else 8 if block >= 2048 else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs = min(n_rows, PROGRAMS)
    online_softmax_kernel[(programs,)](
        x,
        out,
        n_rows // programs,
        n_cols,
        x.stride(0),
        out.stride(0),
        **settings(n_cols),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of the softmax, from dy and its result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        **settings(n_cols),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Forward and backward, tied together for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
