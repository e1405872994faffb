# gpu-programming/triton-kernels/add_rms_norm.py | right | Right, but unusual: a constexpr branch keeps a row of one tile in registers, longer rows go through a branch with two loops, the second one from the last tile to the first, and the norm of long rows uses the sum before rounding.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

WARPS_OF = {1024: (2, 4), 2048: (2, 4, 8), 4096: (4, 8, 16), 8192: (8, 16, 32), 16384: (16, 32)}
CONFIGS = [triton.Config({"TILE": tile}, num_warps=warps) for tile, choice in WARPS_OF.items() for warps in choice]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def fetch(row_ptr, cols, n_cols):
    """Columns of a row as fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of a row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


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
        # the whole row is in registers
        total = fetch(x_row, cols, n_cols) + fetch(residual_row, cols, n_cols)
        put(total_row, cols, n_cols, total)
        total = total.to(total_ptr.dtype.element_ty).to(tl.float32)
        root = tl.sqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        put(out_row, cols, n_cols, total / root * fetch(weight_ptr, cols, n_cols))
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            at = i * TILE + cols
            total = fetch(x_row, at, n_cols) + fetch(residual_row, at, n_cols)
            squares += total * total
        root = tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for i in range(TILES):
            at = (TILES - 1 - i) * TILE + cols
            total = fetch(x_row, at, n_cols) + fetch(residual_row, at, n_cols)
            put(total_row, at, n_cols, total)
            put(out_row, at, n_cols, total / root * fetch(weight_ptr, at, n_cols))


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_rms_norm_kernel[(n_rows,)](
        x,
        residual,
        weight,
        out,
        total,
        n_cols,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        total.stride(0),
        1e-5,
    )
    return out, total
