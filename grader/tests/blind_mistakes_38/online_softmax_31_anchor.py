# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel: the first loop moves dy_at and y_at forward with `dy_at += BLOCK`, `y_at += BLOCK`, and the second loop goes on with them where they stopped, behind the row. They should be set back to the start of the row between the loops (subtract BLOCK once for each block, or form them again). The sum s is right, but dx is made of what lies BLOCK * cdiv(n_cols, BLOCK) elements further on: other rows, the space between rows, or memory outside the tensors. Wrong in every case of softmax_backward and in every gradient of softmax().
"""Online softmax; the backward pass walks along its rows with moving pointers."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_at = x_ptr + row * stride_x + lanes
    y_at = y_ptr + row * stride_y + lanes
    if ONE_BLOCK:
        x = tl.load(x_at, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_at, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_at + start, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_at + start, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
            e = tl.exp(x - m)
            tl.store(y_at + start, (e / d).to(y_ptr.dtype.element_ty), mask=lanes < n_cols - start)


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
    lanes = tl.arange(0, BLOCK)
    dy_at = dy_ptr + row * stride_dy + lanes
    y_at = y_ptr + row * stride_y + lanes
    dx_at = dx_ptr + row * stride_dx + lanes

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        exists = lanes < n_cols - start
        g = tl.load(dy_at, mask=exists, other=0.0).to(tl.float32)
        p = tl.load(y_at, mask=exists, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
        dy_at += BLOCK
        y_at += BLOCK

    for start in range(0, n_cols, BLOCK):
        exists = lanes < n_cols - start
        g = tl.load(dy_at, mask=exists, other=0.0).to(tl.float32)
        p = tl.load(y_at, mask=exists, other=0.0).to(tl.float32)
        tl.store(dx_at, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=exists)
        dy_at += BLOCK
        y_at += BLOCK
        dx_at += BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=max(block // 1024, 1),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // 512, 1),
    )
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
    """Differentiable softmax over the last dimension."""
    return OnlineSoftmax.apply(x)
