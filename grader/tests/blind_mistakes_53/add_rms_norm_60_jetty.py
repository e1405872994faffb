# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In `add_rms_norm_kernel`, `squares += tl.reduce(total, 0, add_squares)` with `add_squares` returning `a * a + b * b`: tl.reduce combines partial results in a tree, so partial sums are squared again at each level (they grow to inf, so out is 0, or shrink to 0). It should be `tl.reduce(total * total, 0, add)` with `add` returning `a + b` (or `tl.sum(total * total)`). `out` is wrong in all cases, also for one column (the lanes past the end are combined, too); `total` is right.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# Tile and warps: 8 to 32 numbers for each thread, so each load has its 16 bytes in 16 bits.
SHAPES = (
    (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16), (8192, 8), (8192, 16), (16384, 16), (16384, 32),
)  # fmt: skip
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def add_squares(a, b):
    """How tl.reduce joins two lanes into a sum of squares."""
    return a * a + b * b


@triton.jit
def summed(x_row, residual_row, cols, n_cols):
    """One tile of x + residual in fp32, with the digits of the stored dtype; 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    total = x.to(tl.float32) + residual.to(tl.float32)
    return total.to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    out_ptr, total_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_out, stride_total,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row = x_ptr + row * stride_x
    residual_row = residual_ptr + row * stride_residual
    out_row = out_ptr + row * stride_out
    total_row = total_ptr + row * stride_total

    squares = 0.0
    for tile in range(TILES):
        total = summed(x_row, residual_row, tile * TILE + lanes, n_cols)
        squares += tl.reduce(total, 0, add_squares)
    factor = tl.rsqrt(squares / n_cols + eps)

    for tile in range(TILES):
        cols = tile * TILE + lanes
        total = summed(x_row, residual_row, cols, n_cols)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        out = total * factor * weight
        tl.store(total_row + cols, total.to(total_ptr.dtype.element_ty), mask=cols < n_cols)
        tl.store(out_row + cols, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if total is None:
        total = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows > 0:
        add_rms_norm_kernel[(n_rows,)](
            x, residual, weight, out, total, n_cols,
            x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
        )  # fmt: skip
    return out, total
