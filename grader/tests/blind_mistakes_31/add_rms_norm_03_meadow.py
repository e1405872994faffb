# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | add_rms_norm_kernel multiplies the normed sum by (1.0 + weight), as the RMSNorm of some models does whose weight is stored around 0; the README says total / sqrt(mean + eps) * weight. out is wrong in every case by total * rstd, total is right. It should be total * rstd * weight
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

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
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,
    weight_ptr,
    out_ptr, total_ptr,
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out is its RMS norm; program i owns row i, which has TILES tiles of TILE columns."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    dtype = total_ptr.dtype.element_ty

    mean = 0.0
    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype).to(tl.float32)
        mean += tl.sum(total * total, axis=0) / n_cols
    rstd = tl.rsqrt(mean + eps)

    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype)
        normed = total.to(tl.float32) * rstd * (1.0 + weight)
        tl.store(total_row + at, total, mask=at < n_cols)
        tl.store(out_row + at, normed.to(out_ptr.dtype.element_ty), mask=at < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
