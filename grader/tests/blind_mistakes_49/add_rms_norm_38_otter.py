# gpu-programming/triton-kernels/add_rms_norm.py | contract | In `result_like`, `torch.empty_strided(x.shape, x.stride(), ...)` gives a new result the row stride of x; it should be a contiguous tensor (`torch.empty(x.shape, ...)`). Numbers are right; shows where `out` or `total` is not given and the rows of x have gaps between them (or x is expanded): what is returned is not contiguous.
"""Residual addition and RMS normalisation, a row for each program, in one tile where it fits, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
WIDEST = 16384

# Tiles and warps: 8 to 32 numbers for each thread.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps, num_stages=1)
    for tile, warps in (
        (1024, 2), (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: tiles as wide as the row, the widest for a longer one."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), WIDEST)
    return [config for config in configs if config.kwargs["TILE"] == size]


@triton.jit
def sum_of(x_row, residual_row, cols, n_cols):
    """x + residual, rounded to the dtype of x; 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def finish(total, rstd, weight_ptr, out_row, total_row, cols, n_cols):
    """Store both results of some columns."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    normed = total.to(tl.float32) * rstd * weight
    tl.store(total_row + cols, total, mask=cols < n_cols)
    tl.store(out_row + cols, normed.to(out_row.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"SINGLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, SINGLE: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)
    if SINGLE:
        total = sum_of(x_row, residual_row, lanes, n_cols)
        wide = total.to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        finish(total, rstd, weight_ptr, out_row, total_row, lanes, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            wide = sum_of(x_row, residual_row, start + lanes, n_cols).to(tl.float32)
            squares += wide * wide
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            total = sum_of(x_row, residual_row, cols, n_cols)
            finish(total, rstd, weight_ptr, out_row, total_row, cols, n_cols)


def result_like(x, given):
    """The tensor for a result: the given one, or else a new one like x."""
    if given is not None:
        return given
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    out, total = result_like(x, out), result_like(x, total)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
