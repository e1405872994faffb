# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | in add_rms_norm_kernel the normalized sum is multiplied by `1.0 + weight`, as in models that store the weight less 1, instead of by weight: out is wrong in every case by the additional term total * rstd, total is right; should be total * rstd * weight
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

WARPS_OF_TILE = {1024: (4,), 2048: (4, 8), 4096: (4, 8), 8192: (8, 16), 16384: (16,)}
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps) for tile, choices in WARPS_OF_TILE.items() for warps in choices
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


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
    """One row a program: the sum of squares over all tiles, then both results tile by tile."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    dtype = total_ptr.dtype.element_ty

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype).to(tl.float32)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        at = tile * TILE + cols
        inside = at < n_cols
        x = tl.load(x_row + at, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype)
        tl.store(total_row + at, total, mask=inside)
        scaled = total.to(tl.float32) * rstd * (1.0 + weight)
        tl.store(out_row + at, scaled.to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    total = torch.empty_like(x, memory_format=torch.contiguous_format) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
