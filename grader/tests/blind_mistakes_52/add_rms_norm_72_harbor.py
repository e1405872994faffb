# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | `tl.reduce(total, 0, with_square)` in `add_rms_norm_kernel` with `return so_far + value * value`: tl.reduce combines partial results in a tree, so the function must be associative, and here it squares partial sums again (and does not square others). It should be `tl.sum(total * total)`, or a reduction of `total * total` with a + b. `total` is right, `out` is wrong in nearly all cases (mostly 0, since the sum becomes inf).
"""Residual addition and RMS normalisation, with the squares summed by a reduction of its own."""

import torch
import triton
import triton.language as tl

# Columns of a tile and warps: 8 to 32 numbers for each thread.
SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16), (16384, 32))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps, num_stages=1) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def with_square(so_far, value):
    """The sum of squares so far, with the square of one more value."""
    return so_far + value * value


@triton.jit
def load_sum(x_row, residual_row, cols, n_cols):
    """x + residual in fp32, rounded as it will be stored, 0 past the end of the row."""
    mask = cols < n_cols
    x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def store_both(out_row, total_row, weight_ptr, total, rstd, cols, n_cols):
    """The sum as it is, and times rstd and the weight of its column."""
    mask = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=mask)
    tl.store(out_row + cols, (total * rstd * weight).to(out_row.dtype.element_ty), mask=mask)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i owns row i, which has TILES tiles of TILE columns; one tile stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    cols = tl.arange(0, TILE)
    if TILES == 1:
        total = load_sum(x_row, residual_row, cols, n_cols)
        squares = tl.reduce(total, 0, with_square)
        rstd = 1.0 / tl.sqrt(squares / n_cols + eps)
        store_both(out_row, total_row, weight_ptr, total, rstd, cols, n_cols)
    else:
        squares = 0.0
        for tile in range(TILES):
            squares += tl.reduce(load_sum(x_row, residual_row, tile * TILE + cols, n_cols), 0, with_square)
        rstd = 1.0 / tl.sqrt(squares / n_cols + eps)
        # Backwards: what was read last is still in the cache.
        for step in range(TILES):
            here = (TILES - 1 - step) * TILE + cols
            total = load_sum(x_row, residual_row, here, n_cols)
            store_both(out_row, total_row, weight_ptr, total, rstd, here, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
