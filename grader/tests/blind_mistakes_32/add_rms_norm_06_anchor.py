# gpu-programming/triton-kernels/add_rms_norm.py | two mistakes | (1) in add_rms_norm the launch passes out.stride(0) twice, also as stride_total: total is stored with the row stride of out, which shows where out and total have different row strides and more than one row (padded or far rows); should be total.stride(0). (2) in add_rms_norm_kernel the square `sums * sums` is taken in the dtype of the inputs and converted to fp32 only afterwards: in fp16 it is inf where |x + residual| is above 256, so rstd and out are 0 there; should be converted to fp32 before it is squared
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in ((1024, 2), (1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def read(ptr, cols, n_cols):
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    residual_ptr += row * stride_residual
    out_ptr += row * stride_out
    total_ptr += row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        cols = i * TILE + lanes
        sums = read(x_ptr, cols, n_cols) + read(residual_ptr, cols, n_cols)
        squares += (sums * sums).to(tl.float32)
    mean = tl.sum(squares, axis=0) / n_cols
    rstd = tl.rsqrt(mean + eps)

    for i in range(TILES):
        cols = i * TILE + lanes
        sums = read(x_ptr, cols, n_cols) + read(residual_ptr, cols, n_cols)
        weight = read(weight_ptr, cols, n_cols).to(tl.float32)
        tl.store(total_ptr + cols, sums, mask=cols < n_cols)
        tl.store(out_ptr + cols, sums.to(tl.float32) * rstd * weight, mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), out.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
