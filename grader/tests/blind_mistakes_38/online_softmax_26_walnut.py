# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward writes dx over the incoming gradient: `softmax_backward(dy, y, out=dy)`, where dy.contiguous() is the tensor that autograd handed over whenever that is contiguous already. The numbers of dx are right, but an input is changed (README: inputs are read-only); somebody else who uses the same gradient gets dx. Shows in the gradient of softmax() for a contiguous dy, not for expanded, transposed, padded or spread ones, which are copied. It should not pass out=, so that dx is a new matrix.
"""Online softmax: forward, backward, autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 16384


@triton.jit
def load_block(row_ptr, cols, n_cols, other: tl.constexpr, policy: tl.constexpr):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other, eviction_policy=policy).to(tl.float32)


@triton.jit
def store_block(row_ptr, cols, n_cols, values):
    tl.store(
        row_ptr + cols,
        values.to(row_ptr.dtype.element_ty),
        mask=cols < n_cols,
        eviction_policy="evict_first",
    )


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    block = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row_ptr, start + block, n_cols, -float("inf"), "evict_last")
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row_ptr, start + block, n_cols, -float("inf"), "evict_first")
        store_block(y_row_ptr, start + block, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    block = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row_ptr, start + block, n_cols, 0.0, "evict_last")
        y = load_block(y_row_ptr, start + block, n_cols, 0.0, "evict_last")
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row_ptr, start + block, n_cols, 0.0, "evict_first")
        y = load_block(y_row_ptr, start + block, n_cols, 0.0, "evict_first")
        store_block(dx_row_ptr, start + block, n_cols, y * (dy - s))


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 32),
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
        dy = dy.contiguous()
        return softmax_backward(dy, y, out=dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
