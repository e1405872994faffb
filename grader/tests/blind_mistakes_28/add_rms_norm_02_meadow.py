# gpu-programming/triton-kernels/add_rms_norm.py | corner | In add_rms_norm_kernel the last tile of a row is moved back to begin at n_cols - TILE (`begin = tl.minimum(tile * TILE, last)`), so it overlaps the tile before; storing an element twice is harmless, but the loop of the sum of squares counts the overlap twice. Shows where n_cols > 16384 and is no multiple of 16384 (16385, 24576, 40000): out is too small by one factor per row, total is right. The sum must mask the columns below tile * TILE in the moved tile (or not move the tile).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

SMALLEST, WIDEST = 1024, 16384

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=2),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=16),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=32),
]


def fitting(configs, named_args, **kwargs):
    """One width only: the whole row if a tile can hold it, else the widest tile."""
    width = triton.next_power_of_2(named_args["n_cols"])
    width = max(SMALLEST, min(width, WIDEST))
    return [config for config in configs if config.kwargs["TILE"] == width]


@triton.jit
def load_fp32(row_ptr, cols, inside):
    return tl.load(row_ptr + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    The last tile of a long row ends where the row ends: it begins at n_cols - TILE, so that it is full, too.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    lanes = tl.arange(0, TILE)
    last = tl.maximum(n_cols - TILE, 0)

    square_sum = 0.0
    for tile in range(TILES):
        begin = tl.minimum(tile * TILE, last)
        cols = begin + lanes
        inside = cols < n_cols
        s = load_fp32(x_ptr, cols, inside) + load_fp32(residual_ptr, cols, inside)
        square_sum += tl.sum(s * s, axis=0)
    scale = tl.rsqrt(square_sum / n_cols + eps)

    for tile in range(TILES):
        begin = tl.minimum(tile * TILE, last)
        cols = begin + lanes
        inside = cols < n_cols
        s = load_fp32(x_ptr, cols, inside) + load_fp32(residual_ptr, cols, inside)
        w = load_fp32(weight_ptr, cols, inside)
        tl.store(total_ptr + cols, s, mask=inside)
        tl.store(out_ptr + cols, s * scale * w, mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum x + residual as `total`, and its RMSNorm times weight as `out`; returns (out, total)."""
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    rows, cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(rows,)](x, residual, weight, out, total, cols, *strides, 1e-5)
    return out, total
