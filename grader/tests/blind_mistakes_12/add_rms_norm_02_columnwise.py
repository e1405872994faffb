# gpu-programming/triton-kernels/add_rms_norm.py | error | the launch passes TILE, which the autotuner's configs set as well: it must be left to the configs; Triton raises "Conflicting meta-parameters: TILE" (or multiple values for TILE) in every case
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in [(1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (8192, 16), (16384, 16)]
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def load(ptr, cols, n_cols):
    """Columns of a row as fp32, 0 past its end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    total_ptr,
    n_cols,
    stride_x,
    stride_residual,
    stride_out,
    stride_total,
    eps,
    TILE: tl.constexpr,
):
    """Program i owns row i; the norm is that of the rounded total, as it is stored."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    squares = 0.0
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        total = load(x_row, cols, n_cols) + load(residual_row, cols, n_cols)
        total = total.to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += tl.sum(total * total, axis=0)
    r = 1.0 / tl.sqrt(squares / n_cols + eps)
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        rounded = (load(x_row, cols, n_cols) + load(residual_row, cols, n_cols)).to(total_ptr.dtype.element_ty)
        out = rounded.to(tl.float32) * r * load(weight_ptr, cols, n_cols)
        tl.store(total_row + cols, rounded, mask=cols < n_cols)
        tl.store(out_row + cols, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        1e-5,
        TILE=min(max(triton.next_power_of_2(n_cols), 1024), 16384),
    )
    return out, total
