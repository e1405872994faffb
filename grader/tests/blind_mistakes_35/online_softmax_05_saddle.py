# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, first loop: m is overwritten with the new maximum before d is rescaled, so the factor exp(m - shift) is exp(0) = 1 and the sum of earlier blocks stays relative to their lower maximum; rows longer than one block (2048 columns) whose maximum rises after the first block with a finite value come out too small. d should be multiplied by exp(old m - new m). (2) OnlineSoftmax.forward saves x in place of the result y, so the gradient of softmax() is x * (dy - sum x * dy): wrong in every case of the gradient. It should be ctx.save_for_backward(y).
"""Online softmax with its gradient."""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 2048


@triton.jit
def load_row_part(row_ptr, start, n_cols, fill, BLOCK: tl.constexpr):
    """Columns start to start + BLOCK - 1 of a row in fp32, with `fill` past its end."""
    offs = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + offs, mask=offs < n_cols, other=fill).to(tl.float32)


@triton.jit
def store_row_part(row_ptr, start, n_cols, value, BLOCK: tl.constexpr):
    """Store a block of columns, rounded to the dtype of the matrix."""
    offs = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + offs, value.to(row_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row_part(x_row, start, n_cols, -float("inf"), BLOCK)
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)

    for start in range(0, n_cols, BLOCK):
        x = load_row_part(x_row, start, n_cols, -float("inf"), BLOCK)
        store_row_part(y_row, start, n_cols, tl.exp(x - m) / d, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_row_part(dy_row, start, n_cols, 0.0, BLOCK)
        y = load_row_part(y_row, start, n_cols, 0.0, BLOCK)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        dy = load_row_part(dy_row, start, n_cols, 0.0, BLOCK)
        y = load_row_part(y_row, start, n_cols, 0.0, BLOCK)
        store_row_part(dx_row, start, n_cols, y * (dy - s), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(BLOCK_COLS, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BLOCK_COLS, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """The result for x."""
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        """The gradient for x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
