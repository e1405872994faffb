# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) add_rms_norm_kernel loads the weight once, before the loops, for the first tile only, and uses it for all tiles: out is wrong from column TILE on in rows longer than 4096 (it should be loaded at the columns of each tile). (2) The kernel's parameters are stride_total, stride_out, but the launch passes out.stride(0), total.stride(0): both results go to wrong places where the two strides differ (the launch should pass total.stride(0) first).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs with the tile for this row: as wide as the row, but from 1024 to 4096."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 4096)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def rounded_sum(x_row, residual_row, at, n_cols):
    """Return x + residual as it is stored, in fp32, and 0 past the end."""
    a = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    b = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
    return (a + b).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
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
    stride_total,
    stride_out,
    eps,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
):
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    total_row = total_ptr + row * stride_total
    out_row = out_ptr + row * stride_out

    # Under way while the row is added up.
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for k in range(TILES):
        total = rounded_sum(x_row, residual_row, k * TILE + cols, n_cols)
        squares += total * total
    r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for k in range(TILES):
        at = k * TILE + cols
        total = rounded_sum(x_row, residual_row, at, n_cols)
        result = total * r * weight
        tl.store(total_row + at, total.to(total_ptr.dtype.element_ty), mask=at < n_cols)
        tl.store(out_row + at, result.to(out_ptr.dtype.element_ty), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        1e-5,
    )
    return out, total
