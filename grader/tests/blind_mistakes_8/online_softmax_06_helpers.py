# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | The helper fold returns (d_new, m_new) while its caller unpacks `m, d`, so maximum and sum change places after each block; it must return m_new first.
"""Online softmax, its gradient and the autograd function, with small helpers for what both sweeps share."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 2048


@triton.jit
def fetch(ptr, left, fill, BLOCK: tl.constexpr):
    """The next BLOCK numbers behind ptr in fp32, and `fill` from number `left` on."""
    lane = tl.arange(0, BLOCK)
    return tl.load(ptr + lane, mask=lane < left, other=fill).to(tl.float32)


@triton.jit
def put(ptr, left, values, BLOCK: tl.constexpr):
    """Write the first `left` of BLOCK values behind ptr."""
    lane = tl.arange(0, BLOCK)
    tl.store(ptr + lane, values.to(ptr.dtype.element_ty), mask=lane < left)


@triton.jit
def fold(m, d, x):
    """Maximum and scaled sum after the block x, from those before it."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    safe = tl.where(m_new > -float("inf"), m_new, 0.0)
    d_new = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
    return d_new, m_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_at = x_ptr + row * stride_x
    m = -float("inf")
    d = 0.0
    for done in range(0, n_cols, BLOCK):
        x = fetch(x_at, n_cols - done, -float("inf"), BLOCK)
        m, d = fold(m, d, x)
        x_at += BLOCK
    x_at = x_ptr + row * stride_x
    y_at = y_ptr + row * stride_y
    for done in range(0, n_cols, BLOCK):
        x = fetch(x_at, n_cols - done, -float("inf"), BLOCK)
        put(y_at, n_cols - done, tl.exp(x - m) / d, BLOCK)
        x_at += BLOCK
        y_at += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_at = dy_ptr + row * stride_dy
    y_at = y_ptr + row * stride_y
    s = 0.0
    for done in range(0, n_cols, BLOCK):
        s += tl.sum(fetch(dy_at, n_cols - done, 0.0, BLOCK) * fetch(y_at, n_cols - done, 0.0, BLOCK), axis=0)
        dy_at += BLOCK
        y_at += BLOCK
    dy_at = dy_ptr + row * stride_dy
    y_at = y_ptr + row * stride_y
    dx_at = dx_ptr + row * stride_dx
    for done in range(0, n_cols, BLOCK):
        dy = fetch(dy_at, n_cols - done, 0.0, BLOCK)
        y = fetch(y_at, n_cols - done, 0.0, BLOCK)
        put(dx_at, n_cols - done, y * (dy - s), BLOCK)
        dy_at += BLOCK
        y_at += BLOCK
        dx_at += BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(BLOCK_LIMIT, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    block = min(BLOCK_LIMIT, triton.next_power_of_2(n_cols))
    strides = dy.stride(0), y.stride(0), out.stride(0)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
