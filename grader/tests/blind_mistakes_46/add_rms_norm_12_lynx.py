# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `emit`: `scale = 1.0 + tl.load(weight_ptr + cols, ...)` (the convention of Gemma) should be the weight alone, `scale = tl.load(weight_ptr + cols, ...)`. `out` is wrong in all cases, `total` is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 2),
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
def summed(x_row, residual_row, cols, n_cols):
    """x + residual in fp32, but rounded to their dtype as the next layer gets it; 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.jit
def emit(total, rstd, weight_ptr, out_row, total_row, cols, n_cols):
    """Store a tile of both results."""
    inside = cols < n_cols
    scale = 1.0 + tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * rstd * scale).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Program i has row i; a row that fits one tile stays in registers, a longer one is read twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    cols = tl.arange(0, TILE)
    if WHOLE:
        total = summed(x_row, residual_row, cols, n_cols)
        rstd = tl.rsqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        emit(total, rstd, weight_ptr, out_row, total_row, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in tl.range(0, n_cols, TILE):
            total = summed(x_row, residual_row, start + cols, n_cols)
            squares += total * total
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in tl.range(0, n_cols, TILE):
            total = summed(x_row, residual_row, start + cols, n_cols)
            emit(total, rstd, weight_ptr, out_row, total_row, start + cols, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols, x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
