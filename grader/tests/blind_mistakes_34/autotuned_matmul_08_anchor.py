# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_bias_relu only: epilogue() in `tl.where(sums > 0.0, sums + bias, 0.0)` tests the sum before the bias is added; elements with sum <= 0 and sum + bias > 0 become 0, and those with sum > 0 and sum + bias < 0 stay negative. Shows in every case of matmul_bias_relu; matmul is right. Should test sums + bias
"""Matrix product with a choice of epilogue, the tile order in groups of rows."""

import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, stages, warps, group=8):
    return triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 4, 8, group=4),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    tile_m = first + tile % per_group % height
    tile_n = tile % per_group // height
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.jit
def sum_of_products(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 tile of a @ b at these rows and columns."""
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        depth = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak,
            mask=(rows < M)[:, None] & (depth < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(depth < K)[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        sums = tl.dot(a, b, sums, input_precision="ieee")
    return sums


@triton.jit
def epilogue(sums, bias_ptr, cols, N):
    """Bias and ReLU, both in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    return tl.where(sums > 0.0, sums + bias, 0.0)


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
    sums = sum_of_products(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    if BIAS_RELU:
        sums = epilogue(sums, bias_ptr, cols, N)
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, sums.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; no bias is read."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
