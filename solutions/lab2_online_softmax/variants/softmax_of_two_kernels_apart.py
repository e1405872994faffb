"""EXPECT PASS from softmax and softmax_backward: statistics and result in kernels of their own."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((1024, 4), (4096, 8))], key=["cols"])
@triton.jit
def statistics_kernel(x, stat, cols, stride, BLOCK: tl.constexpr):
    """stat[row] = (m, d), side by side."""
    row = tl.program_id(0).to(tl.int64)
    m = tl.load(x + row * stride).to(tl.float32)  # any column will do as a first guess, but it may be -inf
    d = 0.0
    for c in range(0, cols, BLOCK):
        j = c + tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + j, mask=j < cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(v, 0))
        keep = tl.where(m == top, 1.0, tl.exp(m - top))
        d = d * keep + tl.sum(tl.where(v == -float("inf"), 0.0, tl.exp(v - top)), 0)
        m = top
    tl.store(stat + 2 * row, m)
    tl.store(stat + 2 * row + 1, d)


@triton.jit
def normalise_kernel(x, stat, y, cols, stride, BLOCK: tl.constexpr):
    # Rows lie along axis 0, the only one that takes more than 65535 programs.
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + j, mask=j < cols).to(tl.float32)
    m = tl.load(stat + 2 * row)
    d = tl.load(stat + 2 * row + 1)
    tl.store(y + row * cols + j, tl.exp(v - m) / d, mask=j < cols)


@triton.jit
def gradient_kernel(g, y, dx, cols, stride_g, step_g, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    s = 0.0
    for c in range(0, cols, BLOCK):
        gv = tl.load(g + row * stride_g + (c + j) * step_g, mask=c + j < cols, other=0.0).to(tl.float32)
        s += tl.sum(gv * tl.load(y + row * stride_y + c + j, mask=c + j < cols, other=0.0), 0)
    for c in range(0, cols, BLOCK):
        gv = tl.load(g + row * stride_g + (c + j) * step_g, mask=c + j < cols, other=0.0).to(tl.float32)
        yv = tl.load(y + row * stride_y + c + j, mask=c + j < cols, other=0.0).to(tl.float32)
        tl.store(dx + row * stride_dx + c + j, yv * (gv - s), mask=c + j < cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    rows, cols = y.shape
    gradient_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), dy.stride(1), y.stride(0), out.stride(0), BLOCK=4096, num_warps=8
    )
    return out


class Rowwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, cols = x.shape
        stat = torch.empty((rows, 2), dtype=torch.float32, device=x.device)
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        statistics_kernel[(rows,)](x, stat, cols, x.stride(0))
        normalise_kernel[(rows, triton.cdiv(cols, 2048))](x, stat, y, cols, x.stride(0), BLOCK=2048)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy, ctx.saved_tensors[0])


def softmax(x):
    """Differentiable softmax over the rows of x."""
    return Rowwise.apply(x)
