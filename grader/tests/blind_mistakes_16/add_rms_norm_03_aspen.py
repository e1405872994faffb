# gpu-programming/triton-kernels/add_rms_norm.py | right | right
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

SHAPES = ((1024, 1), (1024, 4), (2048, 4), (2048, 8), (4096, 4), (4096, 16), (8192, 16), (16384, 16), (16384, 32))
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps, num_stages=1) for tile, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def load32(ptr, cols, n_cols):
    """Some columns of a row as fp32, 0 past the end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def store_as(ptr, cols, n_cols, values):
    """Round to the dtype of the row and store."""
    tl.store(ptr + cols, values.to(ptr.dtype.element_ty), mask=cols < n_cols)


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
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    if TILES == 1:
        t = load32(x_row, cols, n_cols) + load32(residual_row, cols, n_cols)
        w = load32(weight_ptr, cols, n_cols)
        store_as(total_row, cols, n_cols, t)
        r = tl.rsqrt(tl.sum(t * t, axis=0) / n_cols + eps)
        store_as(out_row, cols, n_cols, t * r * w)
    else:
        squares = 0.0
        for start in range(0, TILES * TILE, TILE):
            t = load32(x_row, start + cols, n_cols) + load32(residual_row, start + cols, n_cols)
            squares += tl.sum(t * t, axis=0)
        r = tl.rsqrt(squares / n_cols + eps)
        for start in range(0, TILES * TILE, TILE):
            t = load32(x_row, start + cols, n_cols) + load32(residual_row, start + cols, n_cols)
            store_as(total_row, start + cols, n_cols, t)
            store_as(out_row, start + cols, n_cols, t * r * load32(weight_ptr, start + cols, n_cols))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total,
        n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )  # fmt: skip
    return out, total
