# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In `matmul_kernel` the second block of a is loaded at `a_ptrs + BLOCK_K`; it should be `a_ptrs + BLOCK_K * stride_ak`: wrong for K > 32 where a's stride along K is not 1 (a transposed or every second column), as (65, 40, 129) with a transposed, and (19, 21, 40) with a transposed or spread, in both functions. (2) The epilogue `acc.to(bias.dtype) + bias[None, :]` rounds the sum before the bias is added; it should be `acc + bias.to(tl.float32)[None, :]`: matmul_bias_relu loses digits in fp16 and bf16 (exact cases 128 x 128 x 128), fp32 is right.
"""Autotuned matrix product; each turn of the loop along K takes two blocks."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, num_stages, num_warps):
    # Two blocks of 32 a turn: a stage of 128 x 256 takes 48 KB.
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 3, 8),
    _config(256, 128, 3, 8),
    _config(128, 128, 3, 8),
    _config(128, 64, 3, 4),
    _config(64, 128, 3, 4),
    _config(64, 64, 2, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and at most 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // per_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    in_m = rows[:, None] < M
    in_n = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn

    tl.assume(K > 0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        left = K - k
        a0 = tl.load(a_ptrs, mask=in_m & (ks[None, :] < left), other=0.0)
        b0 = tl.load(b_ptrs, mask=in_n & (ks[:, None] < left), other=0.0)
        a1 = tl.load(a_ptrs + BLOCK_K, mask=in_m & (ks[None, :] < left - BLOCK_K), other=0.0)
        b1 = tl.load(b_ptrs + BLOCK_K * stride_bk, mask=in_n & (ks[:, None] < left - BLOCK_K), other=0.0)
        acc = tl.dot(a0, b0, acc, input_precision="ieee")
        acc = tl.dot(a1, b1, acc, input_precision="ieee")
        a_ptrs += 2 * BLOCK_K * stride_ak
        b_ptrs += 2 * BLOCK_K * stride_bk

    c_dtype = c_ptr.dtype.element_ty
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        total = tl.maximum(acc.to(bias.dtype) + bias[None, :], 0.0)
    else:
        total = acc
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_dtype), mask=in_m & in_n)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

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
