# gpu-programming/triton-kernels/add_rms_norm.py | corner | in add_rms_norm_kernel eps is a lower bound, `tl.rsqrt(tl.maximum(mean, eps))`, instead of being added to the mean: out is too large where the mean square of a row is not far above eps = 1e-5 (rows of small values; up to a factor of 1.41 at a mean of 1e-5), and right to within the tolerance for ordinary rows; total is right; should be tl.rsqrt(mean + eps)
"""Residual addition and RMSNorm; the second pass goes backwards, through the tiles that were read last."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
# Numbers of a tile for each thread: 8, 16 or 32.
CONFIGS = [
    triton.Config({"TILE": 32 * warps * numbers}, num_warps=warps)
    for warps, numbers in ((4, 8), (4, 16), (8, 8), (4, 32), (8, 16), (8, 32), (16, 16), (16, 32))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def sum_at(x_row, residual_row, cols, mask):
    """x + residual in fp32."""
    x = tl.load(x_row + cols, mask=mask, other=0.0).to(tl.float32)
    return x + tl.load(residual_row + cols, mask=mask, other=0.0).to(tl.float32)


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
    """Program i owns row i, which has TILES tiles of TILE columns; the norm is that of the unrounded sum."""
    row, lanes = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        cols = i * TILE + lanes
        total = sum_at(x_row, residual_row, cols, cols < n_cols)
        squares += total * total
    mean = tl.sum(squares, axis=0) / n_cols
    rstd = tl.rsqrt(tl.maximum(mean, eps))

    for i in range(TILES):
        cols = (TILES - 1 - i) * TILE + lanes
        inside = cols < n_cols
        total = sum_at(x_row, residual_row, cols, inside)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (total * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if total is None:
        total = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
