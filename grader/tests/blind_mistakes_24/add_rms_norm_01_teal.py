# gpu-programming/triton-kernels/add_rms_norm.py | contract | add_rms_norm returns `out.contiguous(), total.contiguous()`: where a given result has rows apart, the values in it are right, but a newly allocated copy is returned in its place; it should return the given tensors, `return out, total`.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
# TILE: the numbers of warps with which a thread has 8, 16 or 32 numbers of it
WARPS_OF = {1024: (4, 2), 2048: (8, 4), 4096: (16, 8, 4), 8192: (16, 8), 16384: (32, 16)}
CONFIGS = [triton.Config({"TILE": width}, num_warps=warps) for width, many in WARPS_OF.items() for warps in many]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def summed(x_row, residual_row, cols, n_cols):
    """x + residual, as it will be stored, and 0 past the end of the row."""
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=inside, other=0.0).to(tl.float32)
    return (x + residual).to(x_row.dtype.element_ty)


@triton.jit
def finish(sums, r, weight_ptr, out_row, total_row, cols, n_cols):
    """Store a tile of both results."""
    inside = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    normed = sums.to(tl.float32) * r * weight
    tl.store(total_row + cols, sums, mask=inside)
    tl.store(out_row + cols, normed.to(out_row.dtype.element_ty), mask=inside)


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
        sums = summed(x_row, residual_row, cols, n_cols)
        wide = sums.to(tl.float32)
        r = tl.rsqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
        finish(sums, r, weight_ptr, out_row, total_row, cols, n_cols)
    else:
        squares = tl.zeros((TILE,), dtype=tl.float32)
        for i in range(TILES):
            wide = summed(x_row, residual_row, i * TILE + cols, n_cols).to(tl.float32)
            squares += wide * wide
        r = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
        # Backwards: the end of the row is still in the cache.
        for i in range(TILES):
            here = (TILES - 1 - i) * TILE + cols
            sums = summed(x_row, residual_row, here, n_cols)
            finish(sums, r, weight_ptr, out_row, total_row, here, n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times. After Zhang
    and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if total is None:
        total = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        EPS,
    )  # fmt: skip
    return out.contiguous(), total.contiguous()
