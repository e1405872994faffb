# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel, epilogue: tl.where(sums > 0, sums + shift, 0.0) decides by the sum before the bias; where a sum and its biased sum differ in sign the result is 0 instead of positive, or negative instead of 0. Wrong in every case of matmul_bias_relu (matmul is right); it should be tl.maximum(sums + shift, 0.0).
"""Matrix product whose addresses are computed anew in each step along K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    *[_config(m, n, 64, stages, 8) for m, n in ((128, 256), (256, 128)) for stages in (3, 4)],
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """fp32 has no tensor cores, so 64 is the widest tile there; no tile is wider than the result."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Where a tile begins."""
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * num_n
    first_m = (tile // group_size) * GROUP_M
    rows_here = tl.minimum(num_m - first_m, GROUP_M)
    local = tile % group_size
    tile_m = first_m + local % rows_here
    tile_n = local // rows_here
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = m + tl.arange(0, BLOCK_M)
    offs_n = n + tl.arange(0, BLOCK_N)
    mask_m = offs_m < M
    mask_n = offs_n < N
    a_rows = a_ptr + offs_m.to(tl.int64) * stride_am
    b_cols = b_ptr + offs_n.to(tl.int64) * stride_bn

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        mask_k = offs_k < K
        left = tl.load(
            a_rows[:, None] + (offs_k * stride_ak)[None, :], mask=mask_m[:, None] & mask_k[None, :], other=0.0
        )
        right = tl.load(
            b_cols[None, :] + (offs_k * stride_bk)[:, None], mask=mask_k[:, None] & mask_n[None, :], other=0.0
        )
        sums = tl.dot(left, right, sums, input_precision="ieee")

    if BIAS_RELU:
        shift = tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
        sums = tl.where(sums > 0, sums + shift, 0.0)
    c_rows = c_ptr + offs_m.to(tl.int64) * stride_cm
    c_ptrs = c_rows[:, None] + (offs_n.to(tl.int64) * stride_cn)[None, :]
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_n[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
