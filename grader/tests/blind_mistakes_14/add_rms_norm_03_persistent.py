# gpu-programming/triton-kernels/add_rms_norm.py | right | Correct; unusual are persistent programs (at most PROGRAMS) that move their row pointers on by whole grids of rows, eps as a constexpr of the module, and a second loop that runs over the tiles backwards.
"""Residual addition and RMS normalisation: persistent programs, each with every PROGRAMS-th row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056
EPS = tl.constexpr(1e-5)
CONFIGS = [triton.Config({"TILE": 1024 * k}, num_warps=w) for k, w in ((1, 4), (2, 8), (4, 8), (8, 16), (16, 32))]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def total_of(x_row, residual_row, cols, n_cols):
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    # In fp32, then rounded once: this is what is stored, and what is normalised.
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    row, step = first.to(tl.int64), programs.to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    for turn in range(first, n_rows, programs):
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            t = total_of(x_row, residual_row, tile * TILE + lanes, n_cols).to(tl.float32)
            squares += t * t
        r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + EPS)

        # Backwards: the last tile is the one most likely still in a cache.
        for tile in range(TILES):
            cols = (TILES - 1 - tile) * TILE + lanes
            inside = cols < n_cols
            t = total_of(x_row, residual_row, cols, n_cols)
            w = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(total_row + cols, t, mask=inside)
            tl.store(out_row + cols, (t.to(tl.float32) * r * w).to(t.dtype), mask=inside)

        x_row += step * stride_x
        residual_row += step * stride_residual
        out_row += step * stride_out
        total_row += step * stride_total


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    assert residual.shape == x.shape and weight.numel() == n_cols, f"shapes {residual.shape} {weight.shape}"
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
