# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | In `add_rms_norm_kernel`: (1) `r = 1.0 / (root + eps)` has eps outside the root, it should be `1.0 / tl.sqrt(mean + eps)`; shows for rows of small values (0.001), all dtypes. (2) `squares += total * total` multiplies in the dtype of `total`, which `sum_at` returns unconverted; it should be `.to(tl.float32)` first. Shows in fp16 for |total| above 255: the square is inf, and the row of `out` is 0.
"""Residual addition and RMSNorm by persistent programs: each takes every n-th row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8  # at most so many at a time: 8 for each of the 132 multiprocessors of an H100 or H200

# 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4),
        (2048, 4),
        (4096, 4),
        (4096, 8),
        (8192, 8),
        (8192, 16),
        (16384, 16),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_at(x_row, residual_row, cols, n_cols):
    """total at these columns, in the dtype in which it is stored; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    return x + tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_rows, n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """out and total, row by row; a row has TILES tiles of TILE columns."""
    lanes = tl.arange(0, TILE)
    for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        x_row = x_ptr + row * stride_x
        residual_row = residual_ptr + row * stride_residual

        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            total = sum_at(x_row, residual_row, tile * TILE + lanes, n_cols)
            squares += total * total
        root = tl.sqrt(tl.sum(squares, axis=0) / n_cols)
        r = 1.0 / (root + eps)

        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = sum_at(x_row, residual_row, cols, n_cols)
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            result = total.to(tl.float32) * r * weight
            tl.store(total_ptr + row * stride_total + cols, total, mask=cols < n_cols)
            tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, columns contiguous, rows any number of elements apart;
    weight is (n_cols,). The results go to `out` and `total` where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(min(n_rows, PROGRAMS),)](
        x, residual, weight, out, total, n_rows, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
