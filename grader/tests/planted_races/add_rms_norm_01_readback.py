# gpu-programming/triton-kernels/add_rms_norm.py | race | total: program (row, k) stores tile k of its row in line 44 and loads the whole row in line 49, with the tiles that programs (row, l), l != k, store in the same launch; for n_cols > 512; also one program after the other the first tiles read what is not there yet, so out is wrong
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

    A row has TILES tiles of TILE columns. The norm is that of the rounded total, as it is stored.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    total_row = total_ptr + row * stride_total
    cols = tl.program_id(axis=1) * TILE + lanes
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * stride_residual + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    rounded = (x + residual).to(total_ptr.dtype.element_ty)
    tl.store(total_row + cols, rounded, mask=cols < n_cols)
    tl.debug_barrier()
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for tile in range(0, TILES):
        others = tile * TILE + lanes
        total = tl.load(total_row + others, mask=others < n_cols, other=0.0).to(tl.float32)
        squares += total * total
    r = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)
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
