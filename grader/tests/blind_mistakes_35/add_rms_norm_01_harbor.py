# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel, branch of several tiles: `mean += tl.sum(total * total, axis=0) / TILE` and `mean / TILES` take the mean of the tiles' means, which divides by TILES * TILE instead of by n_cols although the last tile is only partly filled; `out` comes out too large by sqrt(TILES * TILE / n_cols), `total` is right. Shows only for n_cols > 16384 that is no multiple of 16384 (16385, 24576, 40000); should be the sum of all tiles divided by n_cols
"""Residual addition and RMS normalisation, autotuned: a row that fits one tile never leaves the registers."""

import torch
import triton
import triton.language as tl

NARROWEST, WIDEST = 1024, 16384

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4),
        (2048, 4),
        (2048, 8),
        (4096, 8),
        (4096, 16),
        (8192, 8),
        (8192, 16),
        (16384, 16),
        (16384, 32),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs whose tile is the row rounded up to a power of two, or the widest tile there is."""
    width = min(max(triton.next_power_of_2(named_args["n_cols"]), NARROWEST), WIDEST)
    return [config for config in configs if config.kwargs["TILE"] == width]


@triton.jit
def summed(x_row, residual_row, cols, n_cols):
    """x + residual at these columns of a row as fp32, rounded as it will be stored; 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def finish(total, r, weight_ptr, out_row, total_row, cols, n_cols):
    """Store both results at these columns."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * r * weight).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        total = summed(x_row, residual_row, lanes, n_cols)
        mean = tl.sum(total * total, axis=0) / n_cols
        finish(total, tl.rsqrt(mean + eps), weight_ptr, out_row, total_row, lanes, n_cols)
    else:
        mean = 0.0
        for tile in range(TILES):
            total = summed(x_row, residual_row, tile * TILE + lanes, n_cols)
            mean += tl.sum(total * total, axis=0) / TILE
        r = tl.rsqrt(mean / TILES + eps)
        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = summed(x_row, residual_row, cols, n_cols)
            finish(total, r, weight_ptr, out_row, total_row, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    total = torch.empty_like(x, memory_format=torch.contiguous_format) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
