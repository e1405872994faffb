# gpu-programming/triton-kernels/add_rms_norm.py | right | the norm is that of the sum before rounding (allowed), the second loop goes over the tiles from the last to the first, eps is a constexpr of the file, a helper adds, the number of tiles is computed in the kernel instead of by heuristics
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)


def candidates():
    """Tiles of 1024 to 16384 columns, with 8, 16 or 32 numbers for each thread."""
    found = []
    tile = 1024
    while tile <= 16384:
        for numbers in (8, 16, 32):
            warps = tile // (32 * numbers)
            if 2 <= warps <= 16:
                found.append(triton.Config({"TILE": tile}, num_warps=warps))
        tile *= 2
    return found


CONFIGS = candidates()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["N_COLS"]), 1024), 16384)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def added(x_row, residual_row, cols, inside):
    """x + residual in fp32, 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return x.to(tl.float32) + residual.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, stride_x,
    residual_ptr, stride_residual,
    weight_ptr,
    out_ptr, stride_out,
    total_ptr, stride_total,
    N_COLS: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + EPS) * weight; program i owns row i.

    The norm takes the sum as it is in registers, before it is rounded for the store.
    """
    TILES: tl.constexpr = (N_COLS + TILE - 1) // TILE
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for k in range(TILES):
        cols = k * TILE + lanes
        total = added(x_row, residual_row, cols, cols < N_COLS)
        squares += total * total
    root = tl.sqrt(tl.sum(squares, axis=0) / N_COLS + EPS)

    # back to front: the tiles at the end were loaded last and are still in the cache
    for k in range(TILES):
        cols = (TILES - 1 - k) * TILE + lanes
        inside = cols < N_COLS
        total = added(x_row, residual_row, cols, inside)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_row + cols, (total / root * weight).to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times.
    """
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, x.stride(0),
        residual, residual.stride(0),
        weight,
        out, out.stride(0),
        total, total.stride(0),
        n_cols,
    )  # fmt: skip
    return out, total
