# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lanes_softmax_kernel`, second loop, `y = tl.exp(x - m) / total` takes the maximum m of each lane; it must be the maximum of the row, `tl.exp(x - top) / total`. A row of one block (up to 4096 columns) comes out uniform, 1 / total at each column; longer rows are wrong, too (and NaN where a lane saw only -inf); right only where all values of a row are equal.
"""Softmax with a running maximum and sum for each lane, which meet once at the end of a row."""

import torch
import triton
import triton.language as tl

LANES = 4096
BACKWARD_BLOCK = 8192
NEG_INF = tl.constexpr(float("-inf"))


@triton.jit
def read(ptr, cols, n_cols, fill):
    """One block of a row as fp32, `fill` past its end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def lanes_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Lane k sees the columns k, k + BLOCK, k + 2 BLOCK, ... of the row of its program."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), NEG_INF, tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = read(x_ptr, start + lane, n_cols, NEG_INF)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == NEG_INF, 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = read(x_ptr, cols, n_cols, NEG_INF)
        y = tl.exp(x - m) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def lanes_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), with the sum s of y * dy kept for each lane at first."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        products += read(dy_ptr, cols, n_cols, 0.0) * read(y_ptr, cols, n_cols, 0.0)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dx = read(y_ptr, cols, n_cols, 0.0) * (read(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def geometry(n_cols: int, widest: int) -> dict:
    """Width of a block, and its warps: one for each 512 columns, from 1 to 16."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 512))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` where it is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    lanes_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), **geometry(n_cols, LANES)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y, into `out` where it is given."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    lanes_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **geometry(n_cols, BACKWARD_BLOCK)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that autograd knows."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy of any layout."""
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension."""
    return OnlineSoftmax.apply(x)
