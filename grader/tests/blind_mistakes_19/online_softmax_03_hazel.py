# labs/lab2_online_softmax/online_softmax.py | contract | _destination, shared by softmax_forward and softmax_backward: returns out.contiguous(), a copy where the rows of out are padded, so the given out stays unwritten and another tensor is returned; it should return out itself
"""Online softmax (Milakov and Gimelshein), one program per row."""

import torch
import triton
import triton.language as tl

NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def _fold(m, d, x):
    """Take the block x into the running maximum m and the running sum d."""
    higher = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(higher == NEG_INF, 0.0, higher)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return higher, d


@triton.jit
def _fetch(row_ptr, cols, n_cols, other):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def _put(row_ptr, cols, n_cols, value):
    tl.store(row_ptr + cols, value.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = NEG_INF
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = _fetch(x_row, start + tl.arange(0, BLOCK), n_cols, NEG_INF)
        m, d = _fold(m, d, x)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        _put(y_row, cols, n_cols, tl.exp(_fetch(x_row, cols, n_cols, NEG_INF) - m) / d)


@triton.jit
def gradient_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(_fetch(dy_row, cols, n_cols, 0.0) * _fetch(y_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = _fetch(y_row, cols, n_cols, 0.0)
        _put(dx_row, cols, n_cols, y * (_fetch(dy_row, cols, n_cols, 0.0) - s))


def _width(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), 16384)


def _destination(like, out):
    """The tensor for the result: out, or a new one."""
    if out is None:
        return torch.empty(like.shape, device=like.device, dtype=like.dtype)
    assert out.shape == like.shape, f"out is {out.shape}, not {like.shape}"
    return out.contiguous()


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of a matrix."""
    out = _destination(x, out)
    n_rows, n_cols = x.shape
    block = _width(n_cols)
    softmax_rows[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block == 16384 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient of softmax_forward."""
    out = _destination(dy, out)
    n_rows, n_cols = dy.shape
    block = _width(n_cols)
    gradient_rows[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(32, max(4, block // 512)),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Ties the two together."""

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
    """Differentiable."""
    return OnlineSoftmax.apply(x)
