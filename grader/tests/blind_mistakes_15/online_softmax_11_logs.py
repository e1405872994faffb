# labs/lab2_online_softmax/online_softmax.py | corner | The second loop of online_softmax_kernel computes exp(x - lse) with lse = m + log(d): where the row lies far from 0 the log is rounded away in the sum, so digits are lost (rows of +-60000) or equal maxima of 1e28 all become 1. It should be exp(x - m) / d.
"""Row softmax: one sweep for the logarithm of the sum, one for the result."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offsets = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + offsets
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        correction = tl.exp(m - shift)
        d = d * correction + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    lse = m + tl.log(d)
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + offsets
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - lse)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    offsets = tl.arange(0, BLOCK)

    dot = 0.0
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + offsets
        grad = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        prob = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(grad * prob, axis=0)

    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + offsets
        grad = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        prob = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        result = prob * (grad - dot)
        tl.store(dx_row_ptr + cols, result.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    num_warps = 8 if block > 8192 else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    num_warps = min(max(block // 512, 4), 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        probabilities = softmax_forward(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, dy):
        (probabilities,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), probabilities)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
