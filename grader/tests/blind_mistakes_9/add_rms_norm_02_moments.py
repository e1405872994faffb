# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) `energy += x * x + residual * residual` lacks the cross term; it must be the square of x + residual: out is wrong everywhere but where one addend is 0. (2) The rows of total are addressed by `row * stride_out`; total has a stride of its own, total.stride(0): where out and total are padded differently, its rows land in wrong places, between rows or out of bounds.
"""Residual addition and RMSNorm: one loop gathers the mean square of a row, a second one stores both results."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def columns(ptr, offset, cols, mask):
    return tl.load(ptr + offset + cols, mask=mask, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols, stride_x, stride_residual, stride_out, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    from_x, from_residual, to = row * stride_x, row * stride_residual, row * stride_out
    energy = tl.zeros((TILE,), tl.float32)
    for i in range(TILES):
        cols = i * TILE + tl.arange(0, TILE)
        mask = cols < n_cols
        x = columns(x_ptr, from_x, cols, mask)
        residual = columns(residual_ptr, from_residual, cols, mask)
        energy += x * x + residual * residual
    scale = tl.rsqrt(tl.sum(energy, axis=0) / n_cols + eps)
    for i in range(TILES):
        cols = i * TILE + tl.arange(0, TILE)
        mask = cols < n_cols
        both = columns(x_ptr, from_x, cols, mask) + columns(residual_ptr, from_residual, cols, mask)
        weight = columns(weight_ptr, 0, cols, mask)
        tl.store(total_ptr + to + cols, both.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_ptr + to + cols, (both * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None):
    """out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols, x.stride(0), residual.stride(0), out.stride(0), 1e-5
    )
    return out, total
