# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMS normalisation; total leaves in the first walk along the row, out in the second."""

import torch
import triton
import triton.language as tl


def _config(tile, num_warps):
    return triton.Config({"TILE": tile}, num_warps=num_warps)


CONFIGS = [
    _config(512, 2),
    _config(1024, 4),
    _config(2048, 8),
    _config(4096, 8),
    _config(8192, 16),
    _config(16384, 16),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols, like):
    """x + residual in the dtype of the pointer `like`, 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(like.dtype.element_ty)


@triton.jit
def scaled(total, rstd, weight_ptr, cols, n_cols):
    """total * rstd * weight in fp32."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
    return total.to(tl.float32) * rstd * weight.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        total = added(x_row, residual_row, lanes, n_cols, total_ptr)
        tl.store(total_row + lanes, total, mask=lanes < n_cols)
        wide = total.to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        result = scaled(total, rstd, weight_ptr, lanes, n_cols)
        tl.store(out_row + lanes, result.to(out_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = added(x_row, residual_row, cols, n_cols, total_ptr)
            tl.store(total_row + cols, total, mask=cols < n_cols)
            wide = total.to(tl.float32)
            squares += wide * wide
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        # Add once more: what was stored above belongs to other threads.
        for tile in range(TILES):
            cols = tile * TILE + lanes
            total = added(x_row, residual_row, cols, n_cols, total_ptr)
            result = scaled(total, rstd, weight_ptr, cols, n_cols)
            tl.store(out_row + cols, result.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), eps=1e-5,
    )  # fmt: skip
    return out, total
