# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | The launch passes total and out (and their strides) in turned order, while the kernel takes out_ptr before total_ptr: the norm lands in `total` and the sum in `out`; it should pass out, total and out.stride(0), total.stride(0).
"""Residual addition and RMS normalisation, row by row."""

import torch
import triton
import triton.language as tl

SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def rounded_sum(x_row, residual_row, cols, n_cols):
    """x + residual, rounded to their dtype, in fp32; 0 past the end of the row."""
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
    """Program i owns row i: two results, TILES tiles of TILE columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = 0.0
    for k in range(TILES):
        s = rounded_sum(x_row, residual_row, k * TILE + tl.arange(0, TILE), n_cols)
        squares += tl.sum(s * s, axis=0)
    rms = tl.sqrt(squares / n_cols + eps)

    for k in range(TILES):
        cols = k * TILE + tl.arange(0, TILE)
        s = rounded_sum(x_row, residual_row, cols, n_cols)
        w = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = s / rms * w
        tl.store(total_row + cols, s.to(total_ptr.dtype.element_ty), mask=cols < n_cols)
        tl.store(out_row + cols, y.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        total,
        out,
        n_cols,
        x.stride(0),
        residual.stride(0),
        total.stride(0),
        out.stride(0),
        1e-5,
    )
    return out, total
