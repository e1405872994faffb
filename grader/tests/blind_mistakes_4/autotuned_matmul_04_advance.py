# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel, epilogue of matmul_bias_relu: ReLU is applied to the product and the bias added after it; it must be max(acc + bias, 0)
"""Tiled matmul with moving pointers."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


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
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    row_ok = offs_m[:, None] < M
    col_ok = offs_n[None, :] < N
    a_step = tl.cast(stride_ak, tl.int64) * BLOCK_K
    b_step = tl.cast(stride_bk, tl.int64) * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (offs_k[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += a_step
        b_ptrs += b_step
    if BIAS_RELU:
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0) + bias[None, :]
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
