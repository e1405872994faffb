"""EXPECT PASS from matmul and matmul_bias_relu: tiles in a named tuple, ordered by tl.swizzle2d."""

from typing import Callable, NamedTuple, Optional

import torch
import triton
import triton.language as tl


class Tile(NamedTuple):
    """One candidate."""

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    STAGES: int = 3
    WARPS: int = 4


def shared(tile: Tile, itemsize: int = 2) -> int:
    """Bytes of shared memory for all stages."""
    return tile.STAGES * (tile.BLOCK_M + tile.BLOCK_N) * tile.BLOCK_K * itemsize


def registers(tile: Tile) -> int:
    """Sums that each thread keeps."""
    return tile.BLOCK_M * tile.BLOCK_N // (32 * tile.WARPS)


def config(tile: Tile) -> triton.Config:
    return triton.Config(
        {"BLOCK_M": tile.BLOCK_M, "BLOCK_N": tile.BLOCK_N, "BLOCK_K": tile.BLOCK_K},
        num_stages=tile.STAGES,
        num_warps=tile.WARPS,
    )


TILES = [
    Tile(128, 256, 64, STAGES=3, WARPS=8),
    Tile(256, 128, 64, STAGES=3, WARPS=8),
    Tile(128, 128, 64, STAGES=3, WARPS=8),
    Tile(128, 64, 64, STAGES=4),
    Tile(64, 64, 32, STAGES=3),
]
assert all(registers(tile) <= 128 for tile in TILES)
BY_CONFIG = {(t.BLOCK_M, t.BLOCK_N, t.BLOCK_K, t.STAGES): t for t in TILES}


def _shared_limit() -> int:
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(torch.cuda.current_device()).shared_memory_per_block_optin
    return 227 << 10


def affordable(configs: list, named_args: dict, **kwargs) -> list:
    """No tile wider than the result, none beyond the shared memory; 64 x 64 for fp32."""
    M, N, dtype = named_args["M"], named_args["N"], named_args["a_ptr"].dtype
    side = min(M, N, 64 if dtype == torch.float32 else 256)
    kept = []
    for one in configs:
        kw = one.kwargs
        tile = BY_CONFIG[kw["BLOCK_M"], kw["BLOCK_N"], kw["BLOCK_K"], one.num_stages]
        if max(tile.BLOCK_M, tile.BLOCK_N) <= side and shared(tile, dtype.itemsize) <= _shared_limit():
            kept += [one]
    return kept or configs[-1:]


@triton.autotune(
    configs=[config(tile) for tile in TILES],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": affordable},
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    across, down = tl.cdiv(N, BLOCK_N), tl.cdiv(M, BLOCK_M)
    i, j = tl.swizzle2d(pid // across, pid % across, down, across, 8)
    rows = i.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = j.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        now = (k + ks).to(tl.int64)
        a = tl.load(
            a_ptr + (rows[:, None] * stride_am + now[None, :] * stride_ak),
            mask=(rows[:, None] < M) & (now[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + (now[:, None] * stride_bk + cols[None, :] * stride_bn),
            mask=(now[:, None] < K) & (cols[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        acc = tl.maximum(acc + tl.expand_dims(bias.to(tl.float32), 0), 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.type.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def make_grid(M: int, N: int) -> Callable[[dict], tuple]:
    """The grid for a result of M x N, as a function of the config."""
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), 1, 1)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    M, K, N = *a.shape, b.shape[-1]
    out = a.new_empty(M, N) if out is None else out
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[make_grid(M, N)](a, b, out, a, M, N, K, *strides, BIAS_RELU=False)
    return out


def matmul_bias_relu(a, b, bias, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    M, K, N = *a.shape, b.shape[-1]
    out = a.new_empty(M, N) if out is None else out
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[make_grid(M, N)](a, b, out, bias, M, N, K, *strides, BIAS_RELU=True)
    return out
