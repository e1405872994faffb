# gpu-programming/triton-kernels/add_rms_norm.py | honest | a @triton.jit helper adds and rounds a tile; the squares are kept as a tile and reduced once; tiles of a row as constexpr loop.
"""Residual addition and RMS normalisation, one program a row, tiles of the row as constexpr loop."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=32),
]


def fitting(configs, named_args, **kwargs):
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add_tile(x_row, residual_row, cols, n_cols):
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    r = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + r).to(x_row.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        t = add_tile(x_row, residual_row, i * TILE + cols, n_cols).to(tl.float32)
        squares += t * t
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for i in range(TILES):
        c = i * TILE + cols
        t = add_tile(x_row, residual_row, c, n_cols)
        w = tl.load(weight_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(total_row + c, t, mask=c < n_cols)
        tl.store(out_row + c, (t.to(tl.float32) * rstd * w).to(out_ptr.dtype.element_ty), mask=c < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    strides = x.stride(0), residual.stride(0), out.stride(0), total.stride(0)
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
