# lab2/online_softmax.py | everywhere | grad_kernel, second loop: dx = y * g - dot, the row sum is not multiplied by y (parentheses lost: y * (g - dot) is right) | "dx_i = y_i * (g_i - s)" / "A row of dx always sums to 0"; softmax_backward and the gradient of softmax for every row of more than one column
"""Softmax, walking along the row with pointers."""

import torch
import triton
import triton.language as tl

STEP = 1024


@triton.jit
def softmax_kernel(src, dst, n_cols, src_stride, dst_stride, STEP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, STEP)
    p = src + row * src_stride + lane
    left = n_cols
    biggest = -float("inf")
    norm = 0.0
    while left > 0:
        v = tl.load(p, mask=lane < left, other=-float("inf")).to(tl.float32)
        cand = tl.maximum(biggest, tl.max(v, axis=0))
        if cand > -float("inf"):
            norm = norm * tl.exp(biggest - cand) + tl.sum(tl.exp(v - cand), axis=0)
        biggest = cand
        p += STEP
        left -= STEP
    inv = 1.0 / norm
    p = src + row * src_stride + lane
    q = dst + row * dst_stride + lane
    left = n_cols
    while left > 0:
        v = tl.load(p, mask=lane < left, other=-float("inf")).to(tl.float32)
        tl.store(q, tl.exp(v - biggest) * inv, mask=lane < left)
        p += STEP
        q += STEP
        left -= STEP


@triton.jit
def grad_kernel(g_ptr, y_ptr, o_ptr, n_cols, g_stride, y_stride, o_stride, STEP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, STEP)
    g_ptr += row * g_stride
    y_ptr += row * y_stride
    o_ptr += row * o_stride
    dot = 0.0
    for c in range(0, n_cols, STEP):
        g = tl.load(g_ptr + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * y, axis=0)
    for c in range(0, n_cols, STEP):
        g = tl.load(g_ptr + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        tl.store(o_ptr + c + lane, y * g - dot, mask=c + lane < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x) if out is None else out
    softmax_kernel[(x.size(0),)](x, y, x.size(1), x.stride(0), y.stride(0), STEP=STEP)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(dy) if out is None else out
    grad_kernel[(y.size(0),)](dy, y, dx, y.size(1), dy.stride(0), y.stride(0), dx.stride(0), STEP=STEP)
    return dx


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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
