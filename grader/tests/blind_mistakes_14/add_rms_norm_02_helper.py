# gpu-programming/triton-kernels/add_rms_norm.py | error | `squares = 0.0` before the loop is a scalar and `squares += total * total` makes it a tile of TILE numbers, a loop-carried variable that changes its type, which Triton does not compile; it should begin as tl.zeros((TILE,), tl.float32), or add tl.sum(total * total, axis=0).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# 8 to 32 numbers for each thread
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * numbers))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for numbers in (8, 16, 32)
    if 4 <= tile // (32 * numbers) <= 32
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add_tile(x_row, residual_row, cols, n_cols):
    """x + residual, rounded as it is stored, in fp32; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
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
    TILES: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    # the sum of squares has to be complete before the first result
    squares = 0.0
    for i in range(TILES):
        total = add_tile(x_row, residual_row, i * TILE + tl.arange(0, TILE), n_cols)
        squares += total * total
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for i in range(TILES):
        cols = i * TILE + tl.arange(0, TILE)
        mask = cols < n_cols
        total = add_tile(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        out = total * rstd * weight
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=mask)
        tl.store(out_row + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    strides = [t.stride(0) for t in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
