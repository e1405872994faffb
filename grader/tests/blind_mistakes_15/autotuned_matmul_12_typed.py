# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | 1. place() counts tiles_in_group as GROUP_M times the tiles along M; it should be GROUP_M times the tiles along N (wrong tiles where there is more than one group). 2. _launch() passes N and 1 as the strides of c; they should be out.stride(0) and out.stride(1), so a padded or transposed out is wrong.
"""Tiled matrix product with an autotuned tile, bias and ReLU fused."""

import torch
import triton
import triton.language as tl

TILES: list = [
    (128, 256, 64, 4, 8),
    (256, 128, 64, 4, 8),
    (128, 128, 64, 4, 8),
    (128, 128, 32, 4, 8),
    (64, 128, 64, 3, 4),
    (64, 64, 64, 3, 4),
]


def _to_config(tile: tuple) -> triton.Config:
    block_m, block_n, block_k, stages, warps = tile
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4},
        num_stages=stages,
        num_warps=warps,
    )


def fitting(configs: list, named_args: dict, **kwargs) -> list:
    widest: int = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size: int = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_in_group = GROUP_M * tiles_m
    first = (tile // tiles_in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % tiles_in_group
    m = (first + within % height) * BLOCK_M
    n = (within // height) * BLOCK_N
    return m, n


@triton.autotune(
    configs=[_to_config(tile) for tile in TILES],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_ptrs = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    by = tl.full((1, 1), BLOCK_K, tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += by * stride_ak
        b_ptrs += by * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, out: torch.Tensor | None, bias_relu: bool
) -> torch.Tensor:
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta: dict) -> tuple:
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), N, 1, BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, False)


def matmul_bias_relu(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    return _launch(a, b, bias, out, True)
