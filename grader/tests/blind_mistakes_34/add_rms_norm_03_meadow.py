# gpu-programming/triton-kernels/add_rms_norm.py | error | add_rms_norm_kernel does not compile for a GPU: `whole` is assigned only in the first branch of `if n_cols <= TILE`, which is a condition at run time, so the name does not exist after that if, and the second `if n_cols <= TILE` fails with "whole is not defined"; at every size except n_cols = 1 (there n_cols is a constant). The interpreter runs it and the values are right there. The condition should be a constexpr (the count of tiles from triton.heuristics), or whole be defined before the if
"""Residual addition and RMSNorm; a row that fits one tile is read once."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
    triton.Config({"TILE": 16384}, num_warps=16),
]


def fitting(configs, named_args, **kwargs):
    """The tiles nearest to the length of a row."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def load_sum(x_row, residual_row, cols, n_cols):
    """x + residual in fp32 with the digits of the dtype, 0 past the end."""
    inside = cols < n_cols
    a = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (a + b).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def store_both(out_row, total_row, weight_ptr, total, r, cols, n_cols):
    """The sum and its normed and weighted values at some columns."""
    inside = cols < n_cols
    w = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * r * w).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    if n_cols <= TILE:
        whole = load_sum(x_row, residual_row, lanes, n_cols)
        squares = tl.sum(whole * whole, axis=0)
    else:
        sums = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            part = load_sum(x_row, residual_row, start + lanes, n_cols)
            sums += part * part
        squares = tl.sum(sums, axis=0)

    r = 1.0 / tl.sqrt(squares / n_cols + eps)

    if n_cols <= TILE:
        store_both(out_row, total_row, weight_ptr, whole, r, lanes, n_cols)
    else:
        for start in range(0, n_cols, TILE):
            part = load_sum(x_row, residual_row, start + lanes, n_cols)
            store_both(out_row, total_row, weight_ptr, part, r, start + lanes, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
