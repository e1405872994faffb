# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `add_rms_norm_kernel`, `squares += tl.reduce(total, 0, plus_square)` with `plus_square(so_far, value) = so_far + value * value`: a reduction combines partial results in a tree, it is no fold from the left, so partial sums are squared again and each group's first element is not squared at all. It should be `tl.sum(total * total, axis=0)`, or a combine function `a + b` on the squares. `out` is wrong in nearly all cases (on a GPU mostly 0, as the sum overflows; for rows of 1 or 2 columns it may be NaN; in an interpreter that folds from the left only the first element of each tile is off); `total` is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# Columns of a tile and warps: 8, 16 or 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": tile}, num_stages=1, num_warps=warps)
    for tile, warps in (
        (1024, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8),
        (8192, 8), (8192, 16), (16384, 16), (16384, 32),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def plus_square(so_far, value):
    """One more element in a sum of squares."""
    return so_far + value * value


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual of some columns, rounded as it is stored, in fp32, and 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    dtype = out_ptr.dtype.element_ty

    squares = 0.0
    for tile in range(TILES):
        total = added(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += tl.reduce(total, 0, plus_square)
    rstd = 1.0 / tl.sqrt(squares / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        total = added(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(dtype), mask=inside)
        tl.store(out_row + cols, (total * rstd * weight).to(dtype), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input.
    """
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
