# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `CONFIGS` the config `_config(128, 192, 64, 4, 8)` has BLOCK_N = 192, which is no power of two: `tl.arange(0, BLOCK_N)` in `matmul_kernel` does not compile (ValueError, "arange's range must be a power of 2"). It shows in both functions for fp16 and bf16 where M and N are both at least 192, as 521 x 389, 1024 x 1024 and the codegen case; `fitting` removes the config for smaller results and for fp32. It should be 128 or 256.
"""Autotuned matrix product, tiles walked in groups of columns, with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

# Columns of tiles that are walked together, row by row.
GROUP_N = 8


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": GROUP_N}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


# Shared memory: stages * (BLOCK_M + BLOCK_N) * BLOCK_K * 2 bytes, at most 227 KB.
CONFIGS = [
    _config(128, 256, 64, 3, 8),  # 144 KB
    _config(256, 128, 64, 3, 8),  # 144 KB
    _config(128, 192, 64, 4, 8),  # 160 KB
    _config(128, 128, 64, 4, 8),  # 128 KB
    _config(64, 128, 64, 4, 4),  # 96 KB
    _config(64, 64, 32, 3, 4),  # 24 KB, in fp32 48 KB
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and at most 64 x 64 for fp32."""
    size = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept if len(kept) > 0 else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_N * tl.cdiv(M, BLOCK_M)
    left = tile // in_group * GROUP_N
    width = tl.minimum(tiles_n - left, GROUP_N)
    within = tile % in_group
    return within // width * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        rest = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (ks[:, None] < rest), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.size(1)
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
