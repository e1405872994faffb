# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel`, `(rows[:, None] * stride_cm).to(tl.int64) + (cols[None, :] * stride_cn).to(tl.int64)` converts after the product has wrapped in int32; it should be `rows[:, None].to(tl.int64) * stride_cm + cols[None, :].to(tl.int64) * stride_cn`. It shows only where rows or columns of `out` lie beyond 2^31 elements (with a stride that itself fits int32), in both functions.
"""Persistent matrix product: as many programs as there are SMs walk over all tiles of c."""

import torch
import triton
import triton.language as tl

TILES = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (64, 64, 32, 3, 4)]
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=st, num_warps=w)
    for bm, bn, bk, st, w in TILES
]


def fitting(configs, named_args, **kwargs):
    """Large tiles only for large results of 16-bit numbers."""
    limit = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile, counted in tiles."""
    in_group = GROUP_M * tiles_n
    first = (tile // in_group) * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return first + within % height, within // height


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tile_m, tile_n = place(tile, tiles_m, tiles_n, GROUP_M)
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        row_mask = rows[:, None] < M
        col_mask = cols[None, :] < N
        a_tile = a_ptr + rows[:, None].to(tl.int64) * stride_am + ks[None, :] * stride_ak
        b_tile = b_ptr + ks[:, None] * stride_bk + cols[None, :].to(tl.int64) * stride_bn

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_tile, mask=row_mask & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_tile, mask=(ks[:, None] < K - k) & col_mask, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_tile += BLOCK_K * stride_ak
            b_tile += BLOCK_K * stride_bk

        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
            acc = tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)
        c_tile = c_ptr + (rows[:, None] * stride_cm).to(tl.int64) + (cols[None, :] * stride_cn).to(tl.int64)
        tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _programs(x):
    if x.is_cuda:
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return 132


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    most = _programs(a)
    grid = lambda meta: (  # noqa: E731
        min(most, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
