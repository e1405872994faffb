# gpu-programming/triton-kernels/add_rms_norm.py | corner | In add_rms_norm_kernel, `rstd = tl.rsqrt(tl.maximum(mean, eps))` takes the larger of the mean square and eps where it should add them: tl.rsqrt(mean + eps). total is always right. out is wrong (too large, by up to a factor of 1.41, where the mean square equals eps) in rows of small values, mean square up to about 100 times eps, in every dtype; in fp32 also by a few units in the last place in rows with a mean square around 1 or less (1 x 1, 3 x 2); elsewhere it is right.
"""x + residual and its RMSNorm, one program for each row."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
# (log2 of the tile, warps): 8 to 32 numbers for each thread
SHAPES = ((10, 4), (11, 4), (11, 8), (12, 4), (12, 8), (13, 8), (13, 16), (14, 16), (14, 32))
CONFIGS = [triton.Config({"TILE": 2**bits}, num_warps=warps) for bits, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def added(x_row, residual_row, cols, n_cols):
    """Columns `cols` of x + residual, as the dtype of x holds them, in fp32; 0 past the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total,
    eps, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Program i computes row i of both results, TILE columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total
    lanes = tl.arange(0, TILE)

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        both = added(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += both * both
    mean = tl.sum(squares, axis=0) / n_cols
    rstd = tl.rsqrt(tl.maximum(mean, eps))

    for tile in range(TILES):
        cols = tile * TILE + lanes
        inside = cols < n_cols
        both = added(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + cols, both.to(total_ptr.dtype.element_ty), mask=inside)
        tl.store(out_row + cols, (both * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """The RMSNorm of x + residual, scaled by weight, and x + residual itself: out and total, in this order."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
