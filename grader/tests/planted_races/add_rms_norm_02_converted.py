# gpu-programming/triton-kernels/add_rms_norm.py | race | wide (fp32 scratch tensor of n_cols elements): all programs, one for each row, store the converted weight to the same elements in line 51 and load them in line 60; any two rows, so for n_rows > 1; same bits, values right
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 4096}, num_warps=16),
    triton.Config({"TILE": 8192}, num_warps=16),
    triton.Config({"TILE": 16384}, num_warps=16),
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
    wide_ptr,  # (n_cols,) fp32, the weight once it is converted
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
    for tile in range(0, TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
        weight = tl.load(weight_ptr + at, mask=at < n_cols, other=0.0)
        tl.store(wide_ptr + at, weight.to(tl.float32), mask=at < n_cols)
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    tl.debug_barrier()
    for tile in range(0, TILES):
        at = tile * TILE + cols
        x = tl.load(x_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + at, mask=at < n_cols, other=0.0).to(tl.float32)
        rounded = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * stride_total + at, rounded, mask=at < n_cols)
        result = rounded.to(tl.float32) * r * tl.load(wide_ptr + at, mask=at < n_cols, other=0.0)
        tl.store(out_ptr + row * stride_out + at, result.to(out_ptr.dtype.element_ty), mask=at < n_cols)


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
    wide = torch.empty((n_cols,), device=x.device, dtype=torch.float32)
    add_rms_norm_kernel[(n_rows,)](
        x, residual, weight, wide, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
