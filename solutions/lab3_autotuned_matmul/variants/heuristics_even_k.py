"""EXPECT PASS from matmul and matmul_bias_relu: heuristics drop the mask of K where it is not needed."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP": 4}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP": 8}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 8}, num_stages=2, num_warps=2),
]


def even_k(args):
    return args["K"] % args["BLOCK_K"] == 0


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.heuristics(values={"EVEN_K": even_k, "WITH_BIAS": lambda args: args["bias"] is not None})
@triton.jit
def even_k_matmul(
    a, b, c, bias, M, N, K, lda, lda2, ldb, ldb2, ldc, ldc2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    EVEN_K: tl.constexpr, WITH_BIAS: tl.constexpr,
):  # fmt: skip
    """tl.swizzle2d does the grouping; without a bias its argument is None and costs nothing."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tl.cdiv(M, BLOCK_M), tiles_n, GROUP)
    rm = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    in_m = (rm < M)[:, None]
    in_n = (rn < N)[None, :]
    a += rm[:, None] * lda + rk[None, :] * lda2
    b += rk[:, None] * ldb + rn[None, :] * ldb2
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(K, 0, -BLOCK_K):
        if EVEN_K:
            a_tile = tl.load(a, mask=in_m, other=0.0)
            b_tile = tl.load(b, mask=in_n, other=0.0)
        else:
            a_tile = tl.load(a, mask=in_m & (rk < k)[None, :], other=0.0)
            b_tile = tl.load(b, mask=in_n & (rk < k)[:, None], other=0.0)
        acc += tl.dot(a_tile, b_tile, input_precision="ieee")
        a += BLOCK_K * lda2
        b += BLOCK_K * ldb
    if WITH_BIAS:
        acc += tl.load(bias + rn, mask=rn < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    tl.store(c + rm[:, None] * ldc + rn[None, :] * ldc2, acc.to(c.dtype.element_ty), mask=in_m & in_n)


def _call(a, b, bias, out):
    M, K = a.size()
    N = b.size(1)
    c = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)  # noqa: E731
    even_k_matmul[grid](a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c


def matmul(a, b, *, out=None):
    return _call(a, b, None, out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _call(a, b, bias, out)
