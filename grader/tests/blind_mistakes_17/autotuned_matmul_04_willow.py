# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) epilogue() applies ReLU to the sum first and adds the bias afterwards; it should be maximum(acc + bias, 0), so matmul_bias_relu is wrong. (2) The store in matmul_kernel adds the column numbers without stride_cn, so an out whose columns are not adjacent (transposed, or every second column) is written at wrong places; it should be offs_n[None, :] * stride_cn.
"""Autotuned tiled GEMM."""

import itertools

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(meta, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [_config(128, 256, 64, stages, 8) for stages in (3, 4)]
CONFIGS += [_config(bm, bn, 64, 3, 8) for bm, bn in ((256, 128), (128, 128))]
CONFIGS += [_config(64, bn, bk, 3, 4) for bn, bk in itertools.product((128, 64), (32,))]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    cols = tl.cdiv(N, BLOCK_N)
    strip = tile // (cols * GROUP_M)
    r0 = strip * GROUP_M
    r_count = tl.minimum(GROUP_M, tl.cdiv(M, BLOCK_M) - r0)
    local = tile % (cols * GROUP_M)
    return (r0 + local % r_count) * BLOCK_M, (local // r_count) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, offs_n, N):
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    return tl.where(acc > 0.0, acc, 0.0) + bias[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    offs_n = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m = (offs_m < M)[:, None]
    mask_n = (offs_n < N)[None, :]
    a_base = a_ptr + offs_m[:, None] * stride_am
    b_base = b_ptr + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        kk = k + offs_k
        a = tl.load(a_base + kk[None, :] * stride_ak, mask=mask_m & (kk[None, :] < K), other=0.0)
        b = tl.load(b_base + kk[:, None] * stride_bk, mask=mask_n & (kk[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, offs_n, N)

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask_m & mask_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
