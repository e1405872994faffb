# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) The first loop of online_softmax_kernel has no guard for blocks of -inf alone: with m and m_new both -inf their difference is NaN, so the shift must be 0 there. (2) In softmax_backward_kernel the product of row and stride is taken in int32 and widened only afterwards, so rows beyond 2^31 elements are addressed wrongly; the row must be int64 before it is multiplied.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
NINF = tl.constexpr(-float("inf"))


@triton.jit
def online_softmax_kernel(X, Y, N, sx, sy, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64)
    X += i * sx
    Y += i * sy
    j = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for k in range(0, N, BLOCK):
        x = tl.load(X + k + j, mask=k + j < N, other=NINF).to(tl.float32)
        t = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - t) + tl.sum(tl.exp(x - t), axis=0)
        m = t
    for k in range(0, N, BLOCK):
        x = tl.load(X + k + j, mask=k + j < N, other=NINF).to(tl.float32)
        tl.store(Y + k + j, (tl.exp(x - m) / d).to(Y.dtype.element_ty), mask=k + j < N)


@triton.jit
def softmax_backward_kernel(G, Y, D, N, sg, sy, sd, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0)
    G += (i * sg).to(tl.int64)
    Y += (i * sy).to(tl.int64)
    D += (i * sd).to(tl.int64)
    j = tl.arange(0, BLOCK)
    s = 0.0
    for k in range(0, N, BLOCK):
        g = tl.load(G + k + j, mask=k + j < N, other=0.0).to(tl.float32)
        y = tl.load(Y + k + j, mask=k + j < N, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for k in range(0, N, BLOCK):
        g = tl.load(G + k + j, mask=k + j < N, other=0.0).to(tl.float32)
        y = tl.load(Y + k + j, mask=k + j < N, other=0.0).to(tl.float32)
        tl.store(D + k + j, (y * (g - s)).to(D.dtype.element_ty), mask=k + j < N)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    m, n = x.shape
    b = min(triton.next_power_of_2(n), FORWARD_BLOCK)
    online_softmax_kernel[(m,)](x, out, n, x.stride(0), out.stride(0), BLOCK=b, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    m, n = dy.shape
    b = min(triton.next_power_of_2(n), BACKWARD_BLOCK)
    softmax_backward_kernel[(m,)](dy, y, out, n, dy.stride(0), y.stride(0), out.stride(0), BLOCK=b, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
