# gpu-programming/triton-kernels/add_rms_norm.py | corner | In the kernel `r = root_of_cols / tl.sqrt(tl.sum(squares, axis=0) + EPS)`: with the division by n_cols outside of the root, eps has to be multiplied by n_cols (`+ n_cols * EPS`). Shows where eps matters: rows of small values (values "narrow"), with more than one column.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import math

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=32),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, root_of_cols, stride_x, stride_residual, stride_out, stride_total,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total * r * weight; program i owns row i.

    r = 1 / sqrt(mean + eps) has the division by n_cols outside of the root: sqrt(n_cols) is the same for
    all rows, so it comes from the host.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        cols = tile * TILE + lanes
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
    r = root_of_cols / tl.sqrt(tl.sum(squares, axis=0) + EPS)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        x = tl.load(x_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + cols, total, mask=inside)
        scaled = total.to(tl.float32) * r * weight
        tl.store(out_ptr + cols, scaled.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    total = torch.empty_like(x, memory_format=torch.contiguous_format) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols, math.sqrt(n_cols),
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
    )  # fmt: skip
    return out, total
