# gpu-programming/triton-kernels/add_rms_norm.py | contract | In the host function `add_rms_norm`, `total = residual if total is None else total`: where no total is given, the sum is written over the input residual, and that is returned. All numbers are right (restore_value makes trials of the autotuner start afresh), but an input is written to, and the returned total is neither new nor, with padded rows, contiguous. Shows only in calls without total. It should be a new contiguous tensor, torch.empty_like(x) or x.new_empty(x.shape).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 32 * warps * each}, num_warps=warps)
    for warps, each in ((4, 8), (4, 16), (8, 8), (4, 32), (8, 16), (8, 32), (16, 16), (16, 32), (32, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, at, n_cols):
    """A tile of x + residual, rounded to their dtype; 0 past the end of the row."""
    x = tl.load(x_row + at, mask=at < n_cols, other=0.0)
    residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.jit
def emit(tile, rstd, weight_ptr, out_row, total_row, at, n_cols):
    """Store a tile of the sum, and the same normalised and scaled."""
    weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
    tl.store(total_row + at, tile, mask=at < n_cols)
    normed = tile.to(tl.float32) * rstd * weight
    tl.store(out_row + at, normed.to(tile.dtype), mask=at < n_cols)


@triton.autotune(
    configs=CONFIGS,
    key=["n_cols"],
    prune_configs_by={"early_config_prune": fitting},
    restore_value=["total_ptr"],
)
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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        tile = added(x_row, residual_row, cols, n_cols)
        wide = tile.to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        emit(tile, rstd, weight_ptr, out_row, total_row, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            wide = added(x_row, residual_row, i * TILE + cols, n_cols).to(tl.float32)
            squares += wide * wide
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for i in range(TILES):
            at = i * TILE + cols
            tile = added(x_row, residual_row, at, n_cols)
            emit(tile, rstd, weight_ptr, out_row, total_row, at, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    After Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    total = residual if total is None else total
    strides = [matrix.stride(0) for matrix in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
