"""EXPECT PASS from matmul and matmul_bias_relu: heuristics below the tuner, a grid of two axes.

A matrix whose K is a multiple of BLOCK_K needs no mask along K, which saves instructions in the loop. A
heuristic finds that out for each config.
"""

import torch
import triton
import triton.language as tl


def cfg(m: int, n: int, k: int, /, *, s: int, w: int) -> triton.Config:
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=s, num_warps=w)


CONFIGS = [
    cfg(128, 256, 64, s=3, w=8),
    cfg(256, 128, 64, s=3, w=8),
    cfg(128, 128, 64, s=3, w=8),
    cfg(128, 128, 32, s=4, w=4),
    cfg(64, 64, 32, s=4, w=4),
]


def not_too_large(configs, args, **_):
    if args["a_ptr"].dtype is torch.float32:
        return configs[-1:]
    fits = lambda c: c.kwargs["BLOCK_M"] <= args["M"] and c.kwargs["BLOCK_N"] <= args["N"]  # noqa: E731
    return [c for c in configs if fits(c)] or configs[-1:]


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": not_too_large})
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BIAS_RELU: tl.constexpr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tl.assume(K > 0)
    rm = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    m_ok = (rm < M)[:, None]
    n_ok = (rn < N)[None, :]
    a_ptrs = a_ptr + (rm[:, None] * stride_am + rk.to(tl.int64)[None, :] * stride_ak)
    b_ptrs = b_ptr + (rk.to(tl.int64)[:, None] * stride_bk + rn[None, :] * stride_bn)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=m_ok, other=0.0)
            b = tl.load(b_ptrs, mask=n_ok, other=0.0)
        else:
            a = tl.load(a_ptrs, mask=m_ok & (rk[None, :] + k < K), other=0.0)
            b = tl.load(b_ptrs, mask=n_ok & (rk[:, None] + k < K), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = relu(acc + tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)[None, :])
    tl.store(
        c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=m_ok & n_ok,
    )


def check(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> tuple[int, int, int]:
    """M, N, K, or a ValueError."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"two matrices, please, not {a.ndim} and {b.ndim} dimensions")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"inner sizes differ: {a.shape[1]} and {b.shape[0]}")
    if a.shape[1] == 0:
        raise ValueError("K is 0")
    if a.dtype != b.dtype:
        raise ValueError(f"dtypes differ: {a.dtype} and {b.dtype}")
    if bias is not None and (bias.shape != (b.shape[1],) or (bias.stride(0) != 1 and b.shape[1] > 1)):
        raise ValueError(f"bias must be contiguous with {b.shape[1]} elements")
    return a.shape[0], b.shape[1], a.shape[1]


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    M, N, K = check(a, b)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](a, b, c, a, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=False)
    return c


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    M, N, K = check(a, b, bias)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=True)
    return c
