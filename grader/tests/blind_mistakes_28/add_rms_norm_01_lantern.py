# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | In add_rms_norm the launch passes `weight, out, total` and the strides of out and total in that order, but add_rms_norm_kernel takes total_ptr before out_ptr (and stride_total before stride_out): the two results are exchanged, `out` holds x + residual and `total` holds the norm, in every case. The launch should pass total before out, strides too.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# (columns of a tile, warps): 8 to 32 numbers for each thread.
TILES_TO_TRY = (
    (1024, 2), (1024, 4),
    (2048, 4), (2048, 8),
    (4096, 4), (4096, 8),
    (8192, 8), (8192, 16),
    (16384, 16), (16384, 32),
)  # fmt: skip
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, warps in TILES_TO_TRY]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def residual_sum(x_row, residual_row, cols, n_cols):
    """x + residual in fp32, rounded to the dtype of x as it will be stored; 0 past the end."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0)
    return (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": lambda args: triton.cdiv(args["n_cols"], args["TILE"])})
@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    weight_ptr,  # (n_cols,) like x
    total_ptr, out_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x, stride_residual, stride_total, stride_out,  # elements from one row to the next
    eps,
    TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i."""
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    total_row, out_row = total_ptr + row * stride_total, out_ptr + row * stride_out

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        value = residual_sum(x_row, residual_row, tile * TILE + cols, n_cols)
        squares += value * value
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        at = tile * TILE + cols
        inside = at < n_cols
        value = residual_sum(x_row, residual_row, at, n_cols)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_row + at, value, mask=inside)
        tl.store(out_row + at, value * rstd * weight, mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), EPS,
    )  # fmt: skip
    return out, total
