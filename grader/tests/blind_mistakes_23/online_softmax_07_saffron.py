# labs/lab2_online_softmax/online_softmax.py | contract | fresh(), used by softmax_forward and softmax_backward without out=: torch.empty_strided(t.size(), t.stride(), ...) gives the result the padded row stride of the input, so it is not contiguous where the input is not (and rows of a row stride of 0 would overlap). The README asks for a new contiguous matrix, such as torch.empty(t.size(), ...).
"""Softmax in three sweeps over the row, from the definition: maximum, sum, quotient. The last two read from L2."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 16384


@triton.jit
def part(row_ptr, start, n_cols, fill, BLOCK: tl.constexpr):
    """BLOCK columns of a row from start on, in fp32, and fill past its end."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    """Round values to the dtype of the row, and store those that exist."""
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    for start in range(0, n_cols, BLOCK):
        m = tl.maximum(m, tl.max(part(x_row, start, n_cols, -float("inf"), BLOCK), axis=0))
    # m is the maximum of the whole row here, and finite.
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        d += tl.sum(tl.exp(part(x_row, start, n_cols, -float("inf"), BLOCK) - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        y = tl.exp(part(x_row, start, n_cols, -float("inf"), BLOCK) - m) / d
        put(y_row, start, n_cols, y, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        s += tl.sum(part(dy_row, start, n_cols, 0.0, BLOCK) * part(y_row, start, n_cols, 0.0, BLOCK), axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = part(dy_row, start, n_cols, 0.0, BLOCK)
        y = part(y_row, start, n_cols, 0.0, BLOCK)
        put(dx_row, start, n_cols, y * (dy - s), BLOCK)


def fresh(t):
    """A new matrix like t."""
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)


def options(n_cols, columns_per_warp):
    """Block and warps of a launch."""
    block = max(32, min(triton.next_power_of_2(n_cols), BLOCK_LIMIT))
    return {"BLOCK": block, "num_warps": min(max(block // columns_per_warp, 4), 32)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = fresh(x)
    rows, cols = x.size(0), x.size(1)
    strides = [t.stride(0) for t in (x, out)]
    online_softmax_kernel[(rows,)](x, out, cols, *strides, **options(cols, 2048))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y."""
    if out is None:
        out = fresh(dy)
    rows, cols = dy.size(0), dy.size(1)
    strides = [t.stride(0) for t in (dy, y, out)]
    softmax_backward_kernel[(rows,)](dy, y, out, cols, *strides, **options(cols, 512))
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
