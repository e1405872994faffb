# labs/lab2_online_softmax/online_softmax.py | corner | read_tile, shared by the forward and the backward kernel: lanes past the end of the row load 0, which is right for the backward sum but adds exp(0 - m) to d in the forward kernel (and may become the maximum); the forward kernel needs -inf there
"""Lab 2, online softmax."""

import torch
import triton
import triton.language as tl

WIDTH_LIMIT = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def row_of(ptr, stride):
    """Start of the row of this program."""
    return ptr + tl.program_id(0).to(tl.int64) * stride


@triton.jit
def read_tile(row_ptr, start, n_cols, BLOCK: tl.constexpr):
    """One tile of a row in fp32."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def write_tile(row_ptr, start, n_cols, tile, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, tile.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    x_row = row_of(x_ptr, stride_x)
    y_row = row_of(y_ptr, stride_y)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = read_tile(x_row, start, n_cols, BLOCK)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp2((m - shift) * LOG2E)
        d += tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = read_tile(x_row, start, n_cols, BLOCK)
        write_tile(y_row, start, n_cols, tl.exp2((x - m) * LOG2E) / d, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    dy_row = row_of(dy_ptr, stride_dy)
    y_row = row_of(y_ptr, stride_y)
    dx_row = row_of(dx_ptr, stride_dx)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        s += tl.sum(read_tile(dy_row, start, n_cols, BLOCK) * read_tile(y_row, start, n_cols, BLOCK), axis=0)
    for start in range(0, n_cols, BLOCK):
        y = read_tile(y_row, start, n_cols, BLOCK)
        dy = read_tile(dy_row, start, n_cols, BLOCK)
        write_tile(dx_row, start, n_cols, y * (dy - s), BLOCK)


def options(n_cols: int, per_warp: int) -> dict:
    """Width of a tile and number of warps."""
    block = min(triton.next_power_of_2(n_cols), WIDTH_LIMIT)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // per_warp))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options(n_cols, 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    steps = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *steps, **options(n_cols, 512))
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
    """Differentiable softmax."""
    return OnlineSoftmax.apply(x)
