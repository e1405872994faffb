# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) In add_rms_norm_kernel `r = tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)` adds eps to the sum and not to the mean; it should be `tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)`; shows in `out` for rows of small values (narrow). (2) `total_row = total_ptr + row * stride_result`, where the launch sends `out.stride(0)` as stride_result for both results; total needs its own stride, `total.stride(0)`; shows where out and total are padded differently (also total alone far apart), from the second row on.
"""Residual addition and RMSNorm of the sum, row by row, autotuned over the width of a tile."""

import torch
import triton
import triton.language as tl

WIDEST = 16384

# From 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """A tile as wide as the row, or half of that; the widest ones for long rows."""
    row = triton.next_power_of_2(named_args["n_cols"])
    wanted = max(1024, min(row, WIDEST))
    return [config for config in configs if wanted // 2 <= config.kwargs["TILE"] <= wanted]


def tiles_of_row(args):
    return triton.cdiv(args["n_cols"], args["TILE"])


@triton.jit
def summed(x_row, residual_row, cols, inside):
    """x + residual of some columns as it is stored, back in fp32; 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    total = x.to(tl.float32) + residual.to(tl.float32)
    return total.to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": tiles_of_row})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_cols,
    stride_x,
    stride_residual,
    stride_result,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """Program i: total = x + residual and out = total / sqrt(mean(total * total) + eps) * weight of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_result
    total_row = total_ptr + row * stride_result
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        cols = i * TILE + lanes
        total = summed(x_row, residual_row, cols, cols < n_cols)
        squares += total * total
    r = tl.rsqrt((tl.sum(squares, axis=0) + eps) / n_cols)

    # Not read back from total: what another thread has stored need not be there yet.
    for i in range(TILES):
        cols = i * TILE + lanes
        inside = cols < n_cols
        total = summed(x_row, residual_row, cols, inside)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = total * r * weight
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual for (n_rows, n_cols), and its rows divided by their root mean square and scaled by weight.

    Returns out and total, in this order.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
