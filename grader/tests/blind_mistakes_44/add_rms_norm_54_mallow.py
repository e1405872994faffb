# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | `tl.reduce(total, 0, sum_of_squares)` in `add_rms_norm_kernel` with `return a * a + b * b`: a combine function gets partial results, too, so these are squared again and again. It should be a sum of `total * total` (combine a + b). `out` is wrong in all cases (mostly 0, as the sum becomes inf); `total` is right.
"""Residual addition and RMSNorm of the sum, one program a row, with a reduction of its own."""

import torch
import triton
import triton.language as tl

# 8 to 32 numbers for each thread: a load of 16 bytes in 16 bits, and no more than the registers hold.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (256, 1), (512, 1), (512, 2), (1024, 1), (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16),
        (8192, 8), (8192, 16), (16384, 16),
    )
]  # fmt: skip


def fitting(configs, named_args, **kwargs):
    """Tiles as wide as the row, or half as wide."""
    widest = min(max(triton.next_power_of_2(named_args["n_cols"]), 256), 16384)
    return [c for c in configs if c.kwargs["TILE"] in (widest, widest // 2)]


@triton.jit
def sum_of_squares(a, b):
    """What two numbers add to the mean square."""
    return a * a + b * b


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """x + residual as it will be stored, in fp32, and 0 past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr,
    n_cols, stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i: total = x + residual and out = total / sqrt(mean(total * total) + eps) * weight in row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    squares = 0.0
    for tile in range(0, TILES):
        total = added(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += tl.reduce(total, 0, sum_of_squares)
    scale = 1.0 / tl.sqrt(squares / n_cols + eps)

    for tile in range(0, TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        total = added(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (total * scale * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, total) for matrices (n_rows, n_cols) of any row strides and a weight for each column."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
