# gpu-programming/triton-kernels/add_rms_norm.py | error | CONFIGS begins with TILE 4096, so `fitting`, which keeps tiles from half of max(next power of 2, 1024) up to that, returns an empty list for rows of up to 2048 columns and the autotuner raises; CONFIGS should also have tiles of 1024 (and 2048).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import itertools

import torch
import triton
import triton.language as tl

# 8 to 32 numbers for each thread
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // 32 // per_thread)
    for tile, per_thread in itertools.product((4096, 8192, 16384), (16, 32))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


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
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        offs = tile * TILE + cols
        mask = offs < n_cols
        x = tl.load(x_row + offs, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + offs, mask=mask, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for tile in range(TILES):
        offs = tile * TILE + cols
        mask = offs < n_cols
        x = tl.load(x_row + offs, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + offs, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        rounded = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_row + offs, rounded, mask=mask)
        out = rounded.to(tl.float32) * rstd * weight
        tl.store(out_row + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
