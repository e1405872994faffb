# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel, second loop: the weight is loaded at `weight_ptr + cols`, so each tile gets the weights of the first one; a row of more than one tile (longer than 16384, or where the autotuner takes a tile of half the row) is wrong from the second tile on. It should be `weight_ptr + at`.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

# From 8 numbers for each thread, one load of 16 bytes in 16 bits, to 32: more do not stay in registers.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=warps)
    for tile, warps in (
        (1024, 2),
        (1024, 4),
        (2048, 4),
        (2048, 8),
        (4096, 4),
        (4096, 8),
        (8192, 8),
        (8192, 16),
        (16384, 16),
        (16384, 32),
    )
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
    out_row, total_row = out_ptr + row * stride_out, total_ptr + row * stride_total
    dtype = total_ptr.dtype.element_ty

    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(TILES):
        at = tile * TILE + cols
        inside = at < n_cols
        x = tl.load(x_row + at, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype).to(tl.float32)
        squares += total * total
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)

    for tile in range(TILES):
        at = tile * TILE + cols
        inside = at < n_cols
        x = tl.load(x_row + at, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = (x + residual).to(dtype)
        tl.store(total_row + at, total, mask=inside)
        tl.store(out_row + at, (total.to(tl.float32) * scale * weight).to(dtype), mask=inside)


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
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0),
        1e-5,
    )
    return out, total
