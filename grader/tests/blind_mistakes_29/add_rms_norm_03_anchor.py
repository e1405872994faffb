# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel: mean_square is the running mean of the tiles' means, `mean_square += (tile mean - mean_square) / (tile + 1)`, which gives each tile the same weight; a shorter last tile counts as much as a full one, so out is wrong where a row is longer than a tile (more than 16384 columns) and is no multiple of it, as 16385 or 40000 columns; right for rows of one tile and for whole tiles; the sums of squares should be added up and divided by n_cols once
"""Residual addition and RMSNorm; the mean of the squares is updated from tile to tile."""

import torch
import triton
import triton.language as tl

# From 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile in (1024, 2048, 4096, 8192, 16384)
    for warps in (4, 8, 16)
    if 8 <= tile // (32 * warps) <= 32
]


def fitting(configs, named_args, **kwargs):
    """The tile that holds a row, up to the widest."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    mean_square = 0.0
    for tile in range(TILES):
        cols = tile * TILE + lanes
        valid = cols < n_cols
        x = tl.load(x_row + cols, mask=valid, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + cols, mask=valid, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        count = tl.minimum(n_cols - tile * TILE, TILE)
        mean_square += (tl.sum(total * total, axis=0) / count - mean_square) / (tile + 1)
    inverse = 1.0 / tl.sqrt(mean_square + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        valid = cols < n_cols
        x = tl.load(x_row + cols, mask=valid, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + cols, mask=valid, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=valid, other=0.0).to(tl.float32)
        stored = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_row + cols, stored, mask=valid)
        y = stored.to(tl.float32) * inverse * weight
        tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=valid)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and total: the scaled rows of x + residual over their root mean square, and x + residual."""
    rows, cols = x.shape
    out = torch.empty((rows, cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((rows, cols), dtype=x.dtype, device=x.device) if total is None else total
    add_rms_norm_kernel[(rows,)](
        x, residual, weight, out, total, cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
