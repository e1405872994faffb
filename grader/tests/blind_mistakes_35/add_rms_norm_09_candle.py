# gpu-programming/triton-kernels/add_rms_norm.py | wrong everywhere | add_rms_norm_kernel: `1.0 / tl.sqrt(squares / n_cols + eps)` lacks the sum over the lanes: squares is a tile of sums, one for each lane, so each column is divided by a root of its own lane (for a row in one tile out is about sign(total) * sqrt(n_cols) * weight). `out` is wrong in every case but n_cols = 1, `total` is right. Should be `tl.sum(squares, axis=0) / n_cols + eps`
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5


def _configs():
    """Tiles from 1024 to 16384 columns, with 8 to 32 numbers for each thread."""
    configs = []
    for tile in (1024, 2048, 4096, 8192, 16384):
        for warps in (4, 8, 16):
            if 8 <= tile // (32 * warps) <= 32:
                configs.append(triton.Config({"TILE": tile}, num_warps=warps))
    return configs


CONFIGS = _configs()


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program i owns row i.

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, TILES * TILE, TILE):
        inside = start + cols < n_cols
        x = tl.load(x_row + start + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + start + cols, mask=inside, other=0.0).to(tl.float32)
        both = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += both * both
    inverse = 1.0 / tl.sqrt(squares / n_cols + eps)

    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for start in range(0, TILES * TILE, TILE):
        inside = start + cols < n_cols
        x = tl.load(x_row + start + cols, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + start + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + cols, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_row + start + cols, total, mask=inside)
        out = total.to(tl.float32) * inverse * weight
        tl.store(out_row + start + cols, out.to(out_ptr.dtype.element_ty), mask=inside)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order."""
    out = x.new_empty(x.shape) if out is None else out
    total = x.new_empty(x.shape) if total is None else total
    strides = [matrix.stride(0) for matrix in (x, residual, out, total)]
    add_rms_norm_kernel[(x.shape[0],)](x, residual, weight, out, total, x.shape[1], *strides, EPS)
    return out, total
