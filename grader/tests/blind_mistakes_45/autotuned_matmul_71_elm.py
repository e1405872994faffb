# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `odd = tl.dot(a1, b1, even, input_precision="ieee")` takes the sums of the other chain: it should be `tl.dot(a1, b1, odd, ...)`. `even + odd` then has twice all even blocks of K and of the odd ones only the last. Both functions are wrong in all cases (for K <= BLOCK_K the sum is doubled).
"""Tiled matrix product, two blocks of K a turn, each with sums of its own."""

import torch
import triton
import triton.language as tl

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps. Two blocks of sums: 128 x 128 has 128 registers a thread with 8 warps.
SHAPES = (
    (128, 128, 32, 3, 8),
    (128, 64, 32, 3, 4),
    (64, 128, 32, 3, 4),
    (64, 64, 64, 3, 4),
    (64, 64, 32, 3, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for m, n, k, s, w in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """What is no larger than the result, and no larger than 64 x 64 for fp32."""
    largest = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        largest = min(largest, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= largest and config.kwargs["BLOCK_N"] <= largest:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    within = tile - group * (GROUP_M * tiles_n)
    height = tl.minimum(GROUP_M, tiles_m - group * GROUP_M)
    tile_m = group * GROUP_M + within % height
    tile_n = within // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A tile of c; `even` has the blocks 0, 2, 4, ... of K, `odd` the blocks 1, 3, 5, ..."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    im = m + tl.arange(0, BLOCK_M)[:, None]
    jn = n + tl.arange(0, BLOCK_N)[None, :]
    row_ok = im < M
    col_ok = jn < N
    im = im.to(tl.int64)
    jn = jn.to(tl.int64)
    ka = tl.arange(0, BLOCK_K)[None, :]
    kb = tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + im * stride_am + ka * stride_ak
    b_ptrs = b_ptr + kb * stride_bk + jn * stride_bn

    even = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, 2 * BLOCK_K):
        rest = K - k
        a0 = tl.load(a_ptrs, mask=row_ok & (ka < rest), other=0.0)
        b0 = tl.load(b_ptrs, mask=col_ok & (kb < rest), other=0.0)
        a1 = tl.load(a_ptrs + BLOCK_K * stride_ak, mask=row_ok & (ka + BLOCK_K < rest), other=0.0)
        b1 = tl.load(b_ptrs + BLOCK_K * stride_bk, mask=col_ok & (kb + BLOCK_K < rest), other=0.0)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        odd = tl.dot(a1, b1, even, input_precision="ieee")
        a_ptrs += 2 * BLOCK_K * stride_ak
        b_ptrs += 2 * BLOCK_K * stride_bk
    acc = even + odd

    if BIAS_RELU:
        cols = n + tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + im * stride_cm + jn * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok & col_ok,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
