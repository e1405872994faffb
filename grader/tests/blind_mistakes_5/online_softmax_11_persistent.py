# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward launches its kernel with the row stride of y for dx (`ld_dy, ld_y, ld_y`) instead of out.stride(0), so rows of dx land in the wrong place, or out of bounds, whenever out and y have different row strides.
"""Online softmax with persistent programs and running pointers (I come from C)."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
MAX_PROGRAMS = 1056  # 8 programs on each of 132 SMs


@triton.jit
def online_softmax_kernel(src, dst, n_rows, n_cols, ld_src, ld_dst, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i = tl.cast(row, tl.int64)

        p = src + i * ld_src + k
        left = n_cols
        m = -float("inf")
        d = 0.0
        while left > 0:
            v = tl.load(p, mask=k < left, other=-float("inf")).to(tl.float32)
            mx = tl.maximum(m, tl.max(v, 0))
            sh = tl.where(mx == -float("inf"), 0.0, mx)
            d = d * tl.exp(m - sh) + tl.sum(tl.exp(v - sh), 0)
            m = mx
            p += BLOCK
            left -= BLOCK

        p = src + i * ld_src + k
        q = dst + i * ld_dst + k
        left = n_cols
        while left > 0:
            v = tl.load(p, mask=k < left, other=0.0).to(tl.float32)
            tl.store(q, (tl.exp(v - m) / d).to(dst.dtype.element_ty), mask=k < left)
            p += BLOCK
            q += BLOCK
            left -= BLOCK


@triton.jit
def softmax_backward_kernel(dy, y, dx, n_rows, n_cols, ld_dy, ld_y, ld_dx, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i = tl.cast(row, tl.int64)

        pg = dy + i * ld_dy + k
        py = y + i * ld_y + k
        left = n_cols
        s = 0.0
        while left > 0:
            g = tl.load(pg, mask=k < left, other=0.0).to(tl.float32)
            f = tl.load(py, mask=k < left, other=0.0).to(tl.float32)
            s += tl.sum(g * f, 0)
            pg += BLOCK
            py += BLOCK
            left -= BLOCK

        pg = dy + i * ld_dy + k
        py = y + i * ld_y + k
        po = dx + i * ld_dx + k
        left = n_cols
        while left > 0:
            g = tl.load(pg, mask=k < left, other=0.0).to(tl.float32)
            f = tl.load(py, mask=k < left, other=0.0).to(tl.float32)
            tl.store(po, (f * (g - s)).to(dx.dtype.element_ty), mask=k < left)
            pg += BLOCK
            py += BLOCK
            po += BLOCK
            left -= BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    ld_x, ld_out = x.stride(0), out.stride(0)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    programs = min(n_rows, MAX_PROGRAMS)
    online_softmax_kernel[(programs,)](x, out, n_rows, n_cols, ld_x, ld_out, BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    ld_dy, ld_y = dy.stride(0), y.stride(0)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    programs = min(n_rows, MAX_PROGRAMS)
    softmax_backward_kernel[(programs,)](
        dy, y, out, n_rows, n_cols, ld_dy, ld_y, ld_y, BLOCK=block, num_warps=8
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
