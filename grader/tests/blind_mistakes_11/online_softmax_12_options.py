# labs/lab2_online_softmax/online_softmax.py | contract | without out the result gets the strides of the input (`torch.empty_strided(like.size(), like.stride(), ...)`), so it is padded where the input is; must be a new contiguous matrix. Shows in softmax_forward and softmax_backward without out, and in softmax, for padded rows (also two rows in one place if a stride is 0); the numbers are right.
"""Online softmax of the rows of a matrix."""

import torch
import triton
import triton.language as tl


def result_like(like: torch.Tensor) -> torch.Tensor:
    """A new matrix with the shape, the strides, the dtype and the device of another one."""
    return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=like.device)


def shape_of_launch(n_cols: int, widest: int) -> dict:
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": min(max(block // 1024, 2), 8)}


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for block in range(tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        peak = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(peak == -float("inf"), 0.0, peak)
        d = tl.sum(tl.exp(x - base), axis=0) + d * tl.exp(m - base)
        m = peak
    for block in range(tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for block in range(tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for block in range(tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = result_like(x)
    n_rows, n_cols = x.shape
    options = shape_of_launch(n_cols, 16384)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = result_like(y)
    n_rows, n_cols = y.shape
    options = shape_of_launch(n_cols, 8192)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options)
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
    return OnlineSoftmax.apply(x)
