# gpu-programming/triton-kernels/add_rms_norm.py | two | (1) the sum of squares is divided by TILE * TILES, the padded width, not by n_cols; (2) the row of total begins at row * stride_out, not row * stride_total | "The mean divides by n_cols, not by the width of the tile" and "Each tensor has strides of its own"; (1) out is too large for n_cols that is not a multiple of TILE; (2) total is misplaced where the row strides of out and total differ
"""Residual addition and RMS normalisation, one program a row."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"TILE": 1024 << i}, num_warps=min(4 << i, 16)) for i in range(5)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_of(x_row, residual_row, at, n_cols, dtype: tl.constexpr):
    """x + residual of some columns, rounded, 0 past the end."""
    x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    y = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    return (x + y).to(dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_out

    square_sum = 0.0
    for tile in range(0, TILES):
        t = sum_of(x_row, residual_row, tile * TILE + cols, n_cols, dtype).to(tl.float32)
        square_sum += tl.sum(t * t)
    rms = tl.sqrt(square_sum / (TILE * TILES) + eps)

    for tile in range(0, TILES):
        at = tile * TILE + cols
        t = sum_of(x_row, residual_row, at, n_cols, dtype)
        w = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        tl.store(total_row + at, t, mask=at < n_cols)
        tl.store(out_row + at, (t.to(tl.float32) / rms * w).to(dtype), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    strides = [t.stride(0) for t in (x, residual, out, total)]
    add_rms_norm_kernel[(x.shape[0],)](x, residual, weight, out, total, x.shape[1], *strides, 1e-5)
    return out, total
