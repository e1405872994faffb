# gpu-programming/triton-kernels/add_rms_norm.py | honest | right: fma, and a second sweep over the tiles from the last to the first.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * each))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for each in (8, 16, 32)
    if tile // (32 * each) <= 32
]


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
    for tile in range(TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares = tl.fma(total, total, squares)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    for back in range(TILES):
        tile = TILES - 1 - back
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_row + at, total, mask=at < n_cols)
        y = total.to(tl.float32) * scale * weight
        tl.store(out_row + at, y.to(out_ptr.dtype.element_ty), mask=at < n_cols)


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
    strides = (x.stride(0), residual.stride(0), out.stride(0), total.stride(0))
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
