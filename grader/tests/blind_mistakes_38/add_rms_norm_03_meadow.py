# gpu-programming/triton-kernels/add_rms_norm.py | error | the decorators of add_rms_norm_kernel are in the wrong order: triton.heuristics stands above triton.autotune, so the lambda of "TILES" runs before a config is chosen and args["TILE"] raises KeyError: 'TILE' at every call; autotune should stand above heuristics
"""Residual addition and RMSNorm of the sum, one program for each row, in TILES tiles of TILE columns."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
WARPS_OF = {1024: (4,), 2048: (4, 8), 4096: (4, 8, 16), 8192: (8, 16), 16384: (16, 32)}
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps) for tile, choices in WARPS_OF.items() for warps in choices
]


def fitting(configs, named_args, **kwargs):
    """Tiles that hold the row, or half of it; of a row longer than all tiles, the two widest."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def tile_of(row_ptr, cols, n_cols):
    """Columns of one row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, and out = total / sqrt(mean(total * total) + eps) * weight, for row pid."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    dtype = total_ptr.dtype.element_ty

    sums = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + tl.arange(0, TILE)
        total = tile_of(x_row, cols, n_cols) + tile_of(residual_row, cols, n_cols)
        total = total.to(dtype).to(tl.float32)
        sums += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(sums, axis=0) / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + tl.arange(0, TILE)
        total = tile_of(x_row, cols, n_cols) + tile_of(residual_row, cols, n_cols)
        rounded = total.to(dtype)
        out = rounded.to(tl.float32) * rstd * tile_of(weight_ptr, cols, n_cols)
        tl.store(total_row + cols, rounded, mask=cols < n_cols)
        tl.store(out_row + cols, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised sum and the sum of x and residual, in this order."""
    n_rows, n_cols = x.shape
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
