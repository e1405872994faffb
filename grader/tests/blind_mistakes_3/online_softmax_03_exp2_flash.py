# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | _fwd, second loop: exp2(s * LOG2E - m_i) scales the scores but not the maximum, so each row is off by a factor of 2 ** (m * (log2(e) - 1)); it must be exp2((s - m_i) * LOG2E), as in the first loop.
import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def _powers(x, m):
    # exp2 is one instruction on the GPU
    return tl.math.exp2((x - m) * LOG2E)


@triton.jit
def _fwd(X, Y, N, stride_x, stride_y, BLOCK_N: tl.constexpr):
    start_m = tl.program_id(0).to(tl.int64)
    X += start_m * stride_x
    Y += start_m * stride_y
    offs_n = tl.arange(0, BLOCK_N)
    m_i = NEG_INF
    l_i = 0.0
    for lo in range(0, N, BLOCK_N):
        s = tl.load(X + lo + offs_n, mask=lo + offs_n < N, other=NEG_INF).to(tl.float32)
        m_ij = tl.maximum(m_i, tl.max(s, 0))
        m_safe = tl.where(m_ij == NEG_INF, 0.0, m_ij)
        alpha = tl.math.exp2((m_i - m_safe) * LOG2E)
        l_i = l_i * alpha + tl.sum(_powers(s, m_safe), 0)
        m_i = m_ij
    scale = 1.0 / l_i
    for lo in range(0, N, BLOCK_N):
        s = tl.load(X + lo + offs_n, mask=lo + offs_n < N, other=NEG_INF).to(tl.float32)
        p = tl.math.exp2(s * LOG2E - m_i) * scale
        tl.store(Y + lo + offs_n, p.to(Y.dtype.element_ty), mask=lo + offs_n < N)


@triton.jit
def _bwd(DO, P, DS, N, stride_do, stride_p, stride_ds, BLOCK_N: tl.constexpr):
    start_m = tl.program_id(0).to(tl.int64)
    DO += start_m * stride_do
    P += start_m * stride_p
    DS += start_m * stride_ds
    offs_n = tl.arange(0, BLOCK_N)
    delta = 0.0
    for lo in range(0, N, BLOCK_N):
        live = lo + offs_n < N
        do = tl.load(DO + lo + offs_n, mask=live, other=0.0).to(tl.float32)
        p = tl.load(P + lo + offs_n, mask=live, other=0.0).to(tl.float32)
        delta += tl.sum(do * p, 0)
    for lo in range(0, N, BLOCK_N):
        live = lo + offs_n < N
        do = tl.load(DO + lo + offs_n, mask=live, other=0.0).to(tl.float32)
        p = tl.load(P + lo + offs_n, mask=live, other=0.0).to(tl.float32)
        tl.store(DS + lo + offs_n, (p * (do - delta)).to(DS.dtype.element_ty), mask=live)


def softmax_forward(x, *, out=None):
    o = torch.empty_like(x) if out is None else out
    M, N = x.shape
    BLOCK_N = min(triton.next_power_of_2(N), 16384)
    _fwd[(M,)](x, o, N, x.stride(0), o.stride(0), BLOCK_N=BLOCK_N, num_warps=8 if BLOCK_N > 8192 else 4)
    return o


def softmax_backward(dy, y, *, out=None):
    ds = torch.empty_like(dy) if out is None else out
    M, N = dy.shape
    BLOCK_N = min(triton.next_power_of_2(N), 8192)
    _bwd[(M,)](dy, y, ds, N, dy.stride(0), y.stride(0), ds.stride(0), BLOCK_N=BLOCK_N, num_warps=8)
    return ds


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = softmax_forward(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, do):
        (p,) = ctx.saved_tensors
        return softmax_backward(do.contiguous(), p)


def softmax(x):
    return OnlineSoftmax.apply(x)
