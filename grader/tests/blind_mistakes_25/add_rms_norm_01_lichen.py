# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | emit: the scale of a column is `1.0 + weight`, as for a norm whose stored weight is the difference from 1; out is too large by total * r in every element, and `total` is right. It should be the weight alone.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

WIDTHS = (1024, 2048, 4096, 8192, 16384)
# 8, 16 or 32 numbers for each thread; a program has 32 warps at most.
CONFIGS = [
    triton.Config({"TILE": width}, num_warps=width // (32 * each))
    for width in WIDTHS
    for each in (8, 16, 32)
    if width // (32 * each) <= 32
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def summed(x_row, residual_row, cols, n_cols):
    """x + residual at these columns, rounded to their dtype; 0 past the end of the row."""
    mask = cols < n_cols
    x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=mask, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def emit(total, r, weight_ptr, out_row, total_row, cols, n_cols):
    """Store both results at these columns."""
    mask = cols < n_cols
    gain = 1.0 + tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total, mask=mask)
    normed = total.to(tl.float32) * r * gain
    tl.store(out_row + cols, normed.to(out_row.dtype.element_ty), mask=mask)


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        # The whole row stays in registers.
        only = summed(x_row, residual_row, cols, n_cols)
        wide = only.to(tl.float32)
        r = tl.rsqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        emit(only, r, weight_ptr, out_row, total_row, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            part = summed(x_row, residual_row, i * TILE + cols, n_cols).to(tl.float32)
            squares += part * part
        r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for i in range(TILES):
            again = summed(x_row, residual_row, i * TILE + cols, n_cols)
            emit(again, r, weight_ptr, out_row, total_row, i * TILE + cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
