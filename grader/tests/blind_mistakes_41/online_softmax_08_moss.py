# labs/lab2_online_softmax/online_softmax.py | error | Exercise softmax_forward (and softmax), kernel `softmax_tiles_kernel`: `tl.max(x, axis=1, keepdims=True)` and `tl.sum(tl.exp(x - shift), axis=1, keepdims=True)` use NumPy's name of the argument; in Triton it is `keep_dims`. An unexpected keyword argument, so a compile error in all cases of the forward pass; `softmax_backward` is right.
"""Softmax over rows of any length: persistent programs step through tiles of rows; its gradient row by row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # eight for each of the 132 multiprocessors of an H200
FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def softmax_tiles_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i has the tiles i, i + programs, i + 2 * programs, ... of ROWS rows each."""
    lanes = tl.arange(0, BLOCK)[None, :]
    n_tiles = tl.cdiv(n_rows, ROWS)
    for tile in range(tl.program_id(axis=0), n_tiles, tl.num_programs(axis=0)):
        rows = (tile * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        exists = rows < n_rows
        x_rows = x_ptr + rows * stride_x
        y_rows = y_ptr + rows * stride_y
        m = tl.full((ROWS, 1), -float("inf"), tl.float32)
        d = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_rows + cols, mask=exists & (cols < n_cols), other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=1, keepdims=True))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keepdims=True)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = exists & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.where(inside, tl.exp(x - m) / d, 0.0)
            tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    rows = min(max(2048 // block, 1), 16)
    softmax_tiles_kernel[(min(triton.cdiv(n_rows, rows), PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=max(1, block // 512),
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
