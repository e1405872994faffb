# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matmul on transposed tiles: sums of (B^T A^T), turned round in registers, K walked from its end to its start."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, group_m):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group_m}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8, 8),
    _config(128, 128, 32, 4, 8, 4),
    _config(64, 128, 64, 3, 4, 8),
    _config(128, 64, 64, 3, 4, 8),
    _config(64, 64, 32, 3, 4, 8),
    _config(16, 32, 32, 3, 2, 2),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Triton has the grouped order as a function of its own."""
    high = tl.cdiv(M, BLOCK_M)
    wide = tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // wide, tile % wide, high, wide, GROUP_M)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def tile_of(base, i, j, I, J, stride_i, stride_j):
    """Elements (i, j) of an I x J matrix, zeros outside; i and j are int64."""
    at = base + i[:, None] * stride_i + j[None, :] * stride_j
    return tl.load(at, mask=(i[:, None] < I) & (j[None, :] < J), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)

    turned = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    steps = tl.cdiv(K, BLOCK_K)
    for step in range(0, steps):
        # the ragged block comes first
        k = ((steps - 1 - step) * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        bt = tile_of(b_ptr, j, k, N, K, stride_bn, stride_bk)
        at = tile_of(a_ptr, k, i, K, M, stride_ak, stride_am)
        turned = tl.dot(bt, at, turned, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        turned = tl.maximum(turned + bias[:, None], 0.0)

    acc = tl.trans(turned)
    c_at = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), 1, 1)

    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
