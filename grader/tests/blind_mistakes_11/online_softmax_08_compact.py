# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) the forward kernel addresses the result with the row stride of x (`out_ptr + first`, one stride in the launch); must be the row stride of out. Shows in softmax_forward for two rows or more where out is padded otherwise than x. (2) the backward kernel computes and stores dx of a block in the loop that still adds up s (one loop, `g - s` with the s so far); must have the sum over the whole row before the first dx, in a second loop. Shows in softmax_backward and the gradient of softmax for n_cols > 4096: all columns but those of the last block.
"""Row softmax, online, and its gradient."""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def online_softmax_kernel(in_ptr, out_ptr, n_cols, stride, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * stride
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(in_ptr + first + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    inverse = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(in_ptr + first + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * inverse
        tl.store(out_ptr + first + cols, y.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """Both inputs are read once: they stay in registers between the sum and dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        g = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
        dx = p * (g - s)
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.size(0), x.size(1)
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.size(0), y.size(1)
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
    return OnlineSoftmax.apply(x)
