# gpu-programming/triton-kernels/add_rms_norm.py | right | The last tile of the row stays in registers after the first pass, and the second pass begins with it and goes backwards over the other tiles; a row of one tile is loaded once by construction.
"""Residual addition and RMSNorm: tile by tile to the end of the row, and back to its beginning."""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=2),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=16),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """Tiles of a whole row, or of half of one; for the longest rows the two widest kinds."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def tile_of_total(x_row, residual_row, cols, n_cols):
    """x + residual, rounded to their dtype and back in fp32; 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.jit
def put(total, rstd, weight_ptr, out_row, total_row, cols, n_cols):
    """Store one tile of both results."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * rstd * weight).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"LAST": lambda args: triton.cdiv(args["n_cols"], args["TILE"]) - 1})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    TILE: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Program i owns row i, of tiles 0 to LAST.

    The last tile stays in registers for the way back, which takes the others in reverse: those that were
    read most recently are the most likely ones to be in a cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(0, LAST):
        before = tile_of_total(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += before * before
    cols = LAST * TILE + lanes
    held = tile_of_total(x_row, residual_row, cols, n_cols)
    squares += held * held
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + EPS)

    put(held, rstd, weight_ptr, out_row, total_row, cols, n_cols)
    for back in range(0, LAST):
        cols = (LAST - 1 - back) * TILE + lanes
        again = tile_of_total(x_row, residual_row, cols, n_cols)
        put(again, rstd, weight_ptr, out_row, total_row, cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """out = total / sqrt(mean(total * total) + 1e-5) * weight and total = x + residual, row by row.

    Returns (out, total): the tensors that are given, of any row stride, or new contiguous ones.
    """
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
