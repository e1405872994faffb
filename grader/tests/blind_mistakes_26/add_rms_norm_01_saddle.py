# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) in `add_rms_norm_kernel`, `squares += total * total` multiplies in the dtype of the inputs: in fp16 a |total| of 256 or more has the square inf, and the whole row of out becomes 0 (total itself is right); shows in fp16 with large values only; should be total.to(tl.float32) before the product. (2) `total_row = total_ptr + row * stride_out` takes the row stride of out for total: shows wherever out and total have different row strides and there are two rows or more (rows of total in the wrong place, between its rows or past its end); should be row * stride_total
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, at, n_cols):
    """Columns `at` of x + residual, in the dtype in which total is stored; 0 past the end of the row."""
    x = tl.load(x_row + at, mask=at < n_cols, other=0.0)
    residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0)
    return x + residual


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
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_out

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        total = added(x_row, residual_row, tile * TILE + cols, n_cols)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        at = tile * TILE + cols
        total = added(x_row, residual_row, at, n_cols)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        normed = total.to(tl.float32) * rstd * weight
        tl.store(total_row + at, total, mask=at < n_cols)
        tl.store(out_row + at, normed.to(out_ptr.dtype.element_ty), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    total = torch.empty_like(x, memory_format=torch.contiguous_format) if total is None else total
    n_rows, n_cols = x.shape
    row_strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *row_strides, 1e-5)
    return out, total
