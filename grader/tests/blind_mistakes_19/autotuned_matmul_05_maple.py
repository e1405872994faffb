# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In multiply_add, the helper of both functions, each product of two tiles is rounded to the dtype of the inputs before it is added to acc; fp32 is unharmed, in fp16 and bf16 digits are lost. It should be tl.dot(a, b, acc) in fp32.
"""Autotuned matmul: two kernels that share the inner product."""

import torch
import triton
import triton.language as tl

BIG = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 32}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
]
SMALL = [
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64}, num_stages=3, num_warps=2),
]


def by_size(configs, named_args, **kwargs):
    """Large tiles for large products of 16 bits, small ones for everything else."""
    large = named_args["M"] >= 512 and named_args["N"] >= 512
    if named_args["a_ptr"].dtype == torch.float32 or not large:
        return [c for c in configs if c.kwargs["BLOCK_M"] <= 64]
    return [c for c in configs if c.kwargs["BLOCK_M"] >= 64]


@triton.jit
def multiply_add(acc, a, b):
    """acc + a @ b for one step along K."""
    part = tl.dot(a, b, input_precision="ieee")
    return acc + part.to(a.dtype)


@triton.jit
def walk_k(
    a_ptr, b_ptr, rows, cols, M, N, K, s_am, s_ak, s_bk, s_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    pa = a_ptr + rows[:, None] * s_am + ks[None, :] * s_ak
    pb = b_ptr + ks[:, None] * s_bk + cols[None, :] * s_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        ok = ks < K - k * BLOCK_K
        a = tl.load(pa, mask=(rows < M)[:, None] & ok[None, :], other=0.0)
        b = tl.load(pb, mask=ok[:, None] & (cols < N)[None, :], other=0.0)
        acc = multiply_add(acc, a, b)
        pa += BLOCK_K * s_ak
        pb += BLOCK_K * s_bk
    return acc


@triton.autotune(configs=BIG + SMALL, key=["M", "N", "K"], prune_configs_by={"early_config_prune": by_size})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, s_am, s_ak, s_bk, s_bn, s_cm, s_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tm, tn = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8)
    rows = tm.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tn.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = walk_k(a_ptr, b_ptr, rows, cols, M, N, K, s_am, s_ak, s_bk, s_bn, BLOCK_M, BLOCK_N, BLOCK_K)
    pc = c_ptr + rows[:, None] * s_cm + cols[None, :] * s_cn
    tl.store(pc, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(configs=BIG + SMALL, key=["M", "N", "K"], prune_configs_by={"early_config_prune": by_size})
@triton.jit
def matmul_bias_relu_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, s_am, s_ak, s_bk, s_bn, s_cm, s_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tm, tn = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 8)
    rows = tm.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tn.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = walk_k(a_ptr, b_ptr, rows, cols, M, N, K, s_am, s_ak, s_bk, s_bn, BLOCK_M, BLOCK_N, BLOCK_K)
    acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    acc = tl.maximum(acc, 0.0)
    pc = c_ptr + rows[:, None] * s_cm + cols[None, :] * s_cn
    tl.store(pc, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in one kernel."""
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](
        a, b, out, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
    )  # fmt: skip
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_bias_relu_kernel[grid](
        a, b, bias, out, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
    )  # fmt: skip
    return out
