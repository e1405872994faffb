# labs/lab2_online_softmax/online_softmax.py | corner | `softmax`, in `OnlineSoftmax.backward`: `if dy.stride(1) == 0:` makes only expanded gradients contiguous; the kernel takes columns of dy to be contiguous. It should be `if dy.stride(1) != 1:` (or always `dy.contiguous()`). Shows for transposed gradients and for every second column of a wider matrix.
"""Online softmax with one maximum for each of a few strips of a row, and its gradient."""

import torch
import triton
import triton.language as tl

WIDTH = 1024  # columns of a strip
STRIPS = 4  # strips of a tile


@triton.jit
def _columns(start, STRIPS: tl.constexpr, WIDTH: tl.constexpr):
    """Column numbers of a (STRIPS, WIDTH) tile of one row."""
    strip = tl.arange(0, STRIPS)[:, None]
    return start + strip * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def strips_forward(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, STRIPS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = tl.full([STRIPS], -float("inf"), tl.float32)
    d = tl.zeros([STRIPS], tl.float32)
    for start in range(0, n_cols, STRIPS * WIDTH):
        cols = _columns(start, STRIPS, WIDTH)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    for start in range(0, n_cols, STRIPS * WIDTH):
        cols = _columns(start, STRIPS, WIDTH)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def strips_backward(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    STRIPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    sums = tl.zeros([STRIPS], tl.float32)
    for start in range(0, n_cols, STRIPS * WIDTH):
        cols = _columns(start, STRIPS, WIDTH)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        sums += tl.sum(dy * y, axis=1)
    s = tl.sum(sums, axis=0)
    for start in range(0, n_cols, STRIPS * WIDTH):
        cols = _columns(start, STRIPS, WIDTH)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def tile_of(n_cols: int) -> dict:
    """A tile no wider than the next power of two: first the strips are narrower, then there are fewer."""
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    strips = min(triton.next_power_of_2(triton.cdiv(n_cols, width)), STRIPS)
    return {"STRIPS": strips, "WIDTH": width, "num_warps": min(max(strips * width // 512, 1), 8)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    strips_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **tile_of(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    strips_backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **tile_of(n_cols)
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
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
