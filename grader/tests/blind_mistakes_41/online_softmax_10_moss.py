# labs/lab2_online_softmax/online_softmax.py | contract | Exercise softmax_backward: where `out` is not given, `out = torch.empty((n_rows, n_cols), dtype=torch.float32, device=dy.device)` makes a result in fp32; it should be `dtype=dy.dtype`, since a new matrix has the dtype of the inputs. Shows for fp16 and bf16 without `out`; the values are right, and `softmax` is right as well, as it passes its own `out`.
"""Online softmax and its gradient. A row that fits one block is read once; a longer one goes through the loops."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def load_block(row_ptr, start, n_cols, other, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_block(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    if ONE_BLOCK:
        x = load_block(x_row_ptr, 0, n_cols, -float("inf"), BLOCK)
        e = tl.exp(x - tl.max(x, axis=0))
        store_block(y_row_ptr, 0, n_cols, e / tl.sum(e, axis=0), BLOCK)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = load_block(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = load_block(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
            store_block(y_row_ptr, start, n_cols, tl.exp(x - m) / d, BLOCK)


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    if ONE_BLOCK:
        dy = load_block(dy_row_ptr, 0, n_cols, 0.0, BLOCK)
        y = load_block(y_row_ptr, 0, n_cols, 0.0, BLOCK)
        s = tl.sum(dy * y, axis=0)
        store_block(dx_row_ptr, 0, n_cols, y * (dy - s), BLOCK)
    else:
        sums = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            dy = load_block(dy_row_ptr, start, n_cols, 0.0, BLOCK)
            y = load_block(y_row_ptr, start, n_cols, 0.0, BLOCK)
            sums += dy * y
        total = tl.sum(sums, axis=0)
        for start in range(0, n_cols, BLOCK):
            dy = load_block(dy_row_ptr, start, n_cols, 0.0, BLOCK)
            y = load_block(y_row_ptr, start, n_cols, 0.0, BLOCK)
            store_block(dx_row_ptr, start, n_cols, y * (dy - total), BLOCK)


def shape_of_blocks(n_cols: int, widest: int) -> dict:
    """What both kernels want to know of a row: its blocks, and the warps for them."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "ONE_BLOCK": n_cols <= block, "num_warps": max(1, block // 512)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    options = shape_of_blocks(n_cols, FORWARD_BLOCK)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y.

    The kernel computes in fp32 and rounds to the dtype of `out` as it stores.
    """
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=torch.float32, device=dy.device)
    options = shape_of_blocks(n_cols, BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options)
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
        dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        return softmax_backward(dy.contiguous(), y, out=dx)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
