# gpu-programming/triton-kernels/add_rms_norm.py | right | Keeps the running mean of the squares, tile by tile, `mean += (sum of the tile - width * mean) / seen`, in place of a sum that is divided at the end; the sum of a tile by `tl.reduce` with an own combine function; `1.0 / tl.sqrt`.
"""Residual addition and RMS normalisation with a running mean of the squares, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# (tile, warps): 8 to 32 numbers for each thread.
SHAPES = ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def sum_of(x_ptrs, residual_ptrs, inside):
    """x + residual, rounded to their dtype, and 0 outside of the row."""
    x = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptrs, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_ptrs.dtype.element_ty)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols,
    stride_x, stride_residual, stride_out, stride_total, eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    `mean` is that of the squares of the columns seen so far: a tile of `width` columns moves it by its own
    difference from it, divided by all columns that were seen.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_ptrs = x_ptr + row * stride_x + lanes
    residual_ptrs = residual_ptr + row * stride_residual + lanes
    out_ptrs = out_ptr + row * stride_out + lanes
    total_ptrs = total_ptr + row * stride_total + lanes

    mean = 0.0
    for tile in range(TILES):
        start = tile * TILE
        t = sum_of(x_ptrs + start, residual_ptrs + start, start + lanes < n_cols).to(tl.float32)
        seen = tl.minimum(start + TILE, n_cols)
        width = seen - start
        mean += (tl.reduce(t * t, 0, plus) - width * mean) / seen
    rstd = 1.0 / tl.sqrt(mean + eps)

    for tile in range(TILES):
        start = tile * TILE
        inside = start + lanes < n_cols
        t = sum_of(x_ptrs + start, residual_ptrs + start, inside)
        weight = tl.load(weight_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_ptrs + start, t, mask=inside)
        tl.store(out_ptrs + start, (t.to(tl.float32) * rstd * weight).to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    total = x.new_empty((n_rows, n_cols)) if total is None else total
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
