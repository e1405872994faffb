# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) The mask in `put` is index <= limit, so one element behind each row is stored; it must be index < limit. (2) g_row in `bwd` uses ld_prob, the row stride of y, where it must use ld_grad; shown where dy and y have different row strides.
"""Online softmax, split into small device functions."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


@triton.jit
def fetch(base, index, limit, fill):
    """One block of a row as fp32, with `fill` behind the end of the row."""
    return tl.load(base + index, mask=index < limit, other=fill).to(tl.float32)


@triton.jit
def put(base, index, limit, value):
    tl.store(base + index, value.to(base.dtype.element_ty), mask=index <= limit)


@triton.jit
def finite_or_zero(v):
    return tl.where(v > -float("inf"), v, 0.0)


@triton.jit
def merge(top, norm, block):
    """The pair (maximum, normaliser) after one more block of values."""
    new_top = tl.maximum(top, tl.max(block, axis=0))
    ref = finite_or_zero(new_top)
    scale = tl.exp(top - ref)
    new_norm = norm * scale + tl.sum(tl.exp(block - ref), axis=0)
    return new_top, new_norm


@triton.jit
def fwd(inp, res, width, ld_inp, ld_res, W: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    src = inp + pid * ld_inp
    dst = res + pid * ld_res
    lanes = tl.arange(0, W)
    top = tl.full((), -float("inf"), tl.float32)
    norm = tl.full((), 0.0, tl.float32)
    n_blocks = tl.cdiv(width, W)
    for b in range(n_blocks):
        top, norm = merge(top, norm, fetch(src, b * W + lanes, width, -float("inf")))
    inv = 1.0 / norm
    for b in range(n_blocks):
        at = b * W + lanes
        put(dst, at, width, tl.exp(fetch(src, at, width, -float("inf")) - top) * inv)


@triton.jit
def bwd(grad, prob, res, width, ld_grad, ld_prob, ld_res, W: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    g_row = grad + pid * ld_prob
    p_row = prob + pid * ld_prob
    dst = res + pid * ld_res
    lanes = tl.arange(0, W)
    dots = tl.zeros((W,), dtype=tl.float32)
    n_blocks = tl.cdiv(width, W)
    for b in range(n_blocks):
        at = b * W + lanes
        dots += fetch(g_row, at, width, 0.0) * fetch(p_row, at, width, 0.0)
    total = tl.sum(dots, axis=0)
    for b in range(n_blocks):
        at = b * W + lanes
        p = fetch(p_row, at, width, 0.0)
        put(dst, at, width, p * (fetch(g_row, at, width, 0.0) - total))


def block_width(n):
    return max(16, min(MAX_BLOCK, triton.next_power_of_2(n)))


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, width = x.shape
    fwd[(rows,)](x, out, width, x.stride(0), out.stride(0), W=block_width(width), num_warps=4)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    rows, width = y.shape
    bwd[(rows,)](dy, y, out, width, dy.stride(0), y.stride(0), out.stride(0), W=block_width(width), num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x):
    return OnlineSoftmax.apply(x)
