# gpu-programming/triton-kernels/add_rms_norm.py | none | the programs of a row each load the whole row of x and of residual, inputs that nobody stores, for the norm; each stores its own tile of total and out and nothing else
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 512}, num_warps=4),
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=8),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: at least two programs for a row, where it is long enough."""
    size = max(triton.next_power_of_2(named_args["n_cols"]) // 2, 512)
    return [config for config in configs if config.kwargs["TILE"] <= size]


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
    """total = x + residual, out = total / sqrt(mean(total * total) + eps) * weight; program (i, k): tile k of row i.

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored. Each program
    of a row adds up the squares of the whole row.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    x_row, residual_row = x_ptr + row * stride_x, residual_ptr + row * stride_residual
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(0, TILES):
        others = tile * TILE + lanes
        x = tl.load(x_row + others, mask=others < n_cols, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + others, mask=others < n_cols, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty).to(tl.float32)
        squares += total * total
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
    cols = tl.program_id(axis=1) * TILE + lanes
    x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    rounded = (x + residual).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row * stride_total + cols, rounded, mask=cols < n_cols)
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    result = rounded.to(tl.float32) * r * weight
    tl.store(out_ptr + row * stride_out + cols, result.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


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
    add_rms_norm_kernel[lambda meta: (n_rows, triton.cdiv(n_cols, meta["TILE"]))](
        x, residual, weight, out, total, n_cols,
        x.stride(0), residual.stride(0), out.stride(0), total.stride(0), 1e-5,
    )  # fmt: skip
    return out, total
