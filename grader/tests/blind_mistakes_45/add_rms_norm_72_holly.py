# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) In `add_rms_norm`, the launch passes `out.stride(0), residual.stride(0), 1e-5`: the stride of total must be `total.stride(0)`; shows where total has another row stride than residual (padded or far total, or total allocated for a padded residual). (2) In `add_rms_norm_kernel`, second sweep, `weights = step * TILE + lanes`: the tiles of the row go backwards (`cols = (TILES - 1 - step) * TILE + lanes`), so the weight must be loaded at `cols`; `out` is wrong in every row of two tiles or more (longer than 16384 in any case, from 1025 on with a tile of half the size), and total is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def rounded_sum(x_row, residual_row, cols, n_cols):
    """x + residual in the dtype of the row, 0 past its end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    The second sweep goes from the end of the row to its beginning: what was read last is still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for step in range(TILES):
        t = rounded_sum(x_row, residual_row, step * TILE + lanes, n_cols).to(tl.float32)
        squares += t * t
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for step in range(TILES):
        cols = (TILES - 1 - step) * TILE + lanes
        inside = cols < n_cols
        total = rounded_sum(x_row, residual_row, cols, n_cols)
        tl.store(total_row + cols, total, mask=inside)
        weights = step * TILE + lanes
        weight = tl.load(weight_ptr + weights, mask=weights < n_cols, other=0.0).to(tl.float32)
        y = total.to(tl.float32) * rstd * weight
        tl.store(out_row + cols, y.to(out_row.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), residual.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
