# labs/lab2_online_softmax/online_softmax.py | error | OnlineSoftmax.backward computes the gradient on the host with operators and sum() of tensors, which the course's language does not permit (POLICY); it must call softmax_backward with a contiguous dy, so that a kernel computes.
"""Softmax: whole blocks without a mask, then what is left of the row."""

import torch
import triton
import triton.language as tl

LIMIT = 1024
NEG = tl.constexpr(-float("inf"))


@triton.jit
def step(m, d, x):
    hi = tl.maximum(m, tl.max(x, 0))
    c = tl.where(hi == NEG, 0.0, hi)
    return hi, d * tl.exp(m - c) + tl.sum(tl.exp(x - c), 0)


@triton.jit
def fwd(x_ptr, y_ptr, N, sx, sy, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    xr = x_ptr + r * sx
    yr = y_ptr + r * sy
    whole = N // B * B
    m, d = -float("inf"), 0.0
    for c in range(0, whole, B):
        m, d = step(m, d, tl.load(xr + c + tl.arange(0, B)).to(tl.float32))
    tail = whole + tl.arange(0, B)
    if whole < N:
        m, d = step(m, d, tl.load(xr + tail, mask=tail < N, other=NEG).to(tl.float32))
    for c in range(0, whole, B):
        x = tl.load(xr + c + tl.arange(0, B)).to(tl.float32)
        tl.store(yr + c + tl.arange(0, B), (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))
    if whole < N:
        x = tl.load(xr + tail, mask=tail < N, other=NEG).to(tl.float32)
        tl.store(yr + tail, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=tail < N)


@triton.jit
def bwd(g_ptr, y_ptr, dx_ptr, N, sg, sy, sd, B: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    gr, yr, dr = g_ptr + r * sg, y_ptr + r * sy, dx_ptr + r * sd
    s = 0.0
    for c in range(0, N, B):
        k = c + tl.arange(0, B)
        g = tl.load(gr + k, mask=k < N, other=0.0).to(tl.float32)
        s += tl.sum(g * tl.load(yr + k, mask=k < N, other=0.0).to(tl.float32), 0)
    for c in range(0, N, B):
        k = c + tl.arange(0, B)
        g = tl.load(gr + k, mask=k < N, other=0.0).to(tl.float32)
        y = tl.load(yr + k, mask=k < N, other=0.0).to(tl.float32)
        tl.store(dr + k, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=k < N)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    rows, N = x.shape
    fwd[(rows,)](x, out, N, x.stride(0), out.stride(0), B=min(LIMIT, triton.next_power_of_2(N)))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    rows, N = dy.shape
    B = min(LIMIT, triton.next_power_of_2(N))
    bwd[(rows,)](dy, y, out, N, dy.stride(0), y.stride(0), out.stride(0), B=B)
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
        return y * (dy - (y * dy).sum(dim=1, keepdim=True))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
