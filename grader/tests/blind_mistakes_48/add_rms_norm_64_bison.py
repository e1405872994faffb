# gpu-programming/triton-kernels/add_rms_norm.py | error | The heuristic `warps`, `min(max(args["n_cols"] // 512, 1), 16)`, gives `num_warps` that is no power of two: 3 for 1536 columns, 5 for 2600 and 3001. Triton raises "num_warps must be a power of 2" at compilation there; it should be rounded to a power of two, e.g. by `triton.next_power_of_2`, or follow TILE. Other widths (below 1536, 2048 to 2559, 4096 to 4607, from 8192 on) are right.
"""Residual addition and RMS normalisation, one program a row; a row that fits a tile stays in registers."""

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"TILE": 2**power}, num_stages=1) for power in range(9, 15)]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 512), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


def warps(args):
    """A warp for every 512 columns, 16 numbers for each of its threads."""
    return min(max(args["n_cols"] // 512, 1), 16)


def tiles(args):
    """Tiles of a row."""
    return triton.cdiv(args["n_cols"], args["TILE"])


@triton.jit
def read(pointer, cols, inside):
    """Some columns of a row in fp32, 0 past its end."""
    return tl.load(pointer + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def finish(out_row, total_row, weight_ptr, total, rstd, cols, inside):
    """Store some columns of both results."""
    weight = read(weight_ptr, cols, inside)
    tl.store(total_row + cols, total.to(total_row.dtype.element_ty), mask=inside)
    tl.store(out_row + cols, (total * rstd * weight).to(out_row.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols"], prune_configs_by={"early_config_prune": fitting})
@triton.heuristics({"TILES": tiles, "num_warps": warps})
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
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    cols = tl.arange(0, TILE)

    if TILES == 1:
        inside = cols < n_cols
        total = read(x_row, cols, inside) + read(residual_row, cols, inside)
        rstd = tl.rsqrt(tl.sum(total * total, axis=0) / n_cols + eps)
        finish(out_row, total_row, weight_ptr, total, rstd, cols, inside)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, TILES * TILE, TILE):
            inside = start + cols < n_cols
            total = read(x_row, start + cols, inside) + read(residual_row, start + cols, inside)
            squares += total * total
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        for start in range(0, TILES * TILE, TILE):
            inside = start + cols < n_cols
            total = read(x_row, start + cols, inside) + read(residual_row, start + cols, inside)
            finish(out_row, total_row, weight_ptr, total, rstd, start + cols, inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times.
    """
    n_rows, n_cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    total = torch.empty(x.shape, dtype=x.dtype, device=x.device) if total is None else total
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
