# labs/lab2_online_softmax/online_softmax.py | corner | In OnlineSoftmax.backward, `if dy.stride(0) < dy.shape[1]: dy = dy.contiguous()` asks whether rows overlap, not whether columns are contiguous; it should be `dy.contiguous()` always, or a test of `dy.stride(1) != 1`. Expanded, transposed and padded gradients are right; dx of softmax is wrong where dy is every second column of a wider matrix (strides such as (258, 2)).
"""Online softmax and its gradient with block pointers along the rows."""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 8192


@triton.jit
def fetch(row_ptr, start, n_cols, BLOCK: tl.constexpr):
    """Columns `start` to start + BLOCK - 1 of a row in fp32, 0 past its end."""
    block = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    return tl.load(block, boundary_check=(0,), padding_option="zero").to(tl.float32)


@triton.jit
def put(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    """Store the same columns, rounded to the dtype of the row, and nothing past its end."""
    block = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    tl.store(block, values.to(row_ptr.dtype.element_ty), boundary_check=(0,))


@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.where(start + lanes < n_cols, fetch(x_row, start, n_cols, BLOCK), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        y = tl.exp(fetch(x_row, start, n_cols, BLOCK) - m) / d
        put(y_row, start, n_cols, y, BLOCK)


@triton.jit
def gradient_rows_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), s = sum(y * dy); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        s += tl.sum(fetch(y_row, start, n_cols, BLOCK) * fetch(dy_row, start, n_cols, BLOCK), axis=0)
    for start in range(0, n_cols, BLOCK):
        dx = fetch(y_row, start, n_cols, BLOCK) * (fetch(dy_row, start, n_cols, BLOCK) - s)
        put(dx_row, start, n_cols, dx, BLOCK)


def options(n_cols: int):
    """Width of a block and warps of a program."""
    block = min(triton.next_power_of_2(n_cols), BLOCK_COLS)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 4), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    softmax_rows_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    gradient_rows_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which is copied only where that is necessary."""
        (y,) = ctx.saved_tensors
        if dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
