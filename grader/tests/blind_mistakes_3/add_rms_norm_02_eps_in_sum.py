# gpu-programming/triton-kernels/add_rms_norm.py | corner | add_rms_norm_kernel: r = sqrt(n_cols) * rsqrt(sum + eps) adds eps to the sum of the squares and not to their mean, so eps is n_cols times too small: wrong where the mean square is not far above 1e-5 (elements near 0.01 and smaller). It must be rsqrt(sum + n_cols * eps).
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE": 1024}, num_warps=4),
    triton.Config({"TILE": 2048}, num_warps=4),
    triton.Config({"TILE": 4096}, num_warps=8),
    triton.Config({"TILE": 8192}, num_warps=8),
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
    # sqrt(n / sum) saves the division ok of the loop
    acc = tl.zeros((TILE,), dtype=tl.float32)
    for i in range(TILES):
        c = i * TILE + cols
        t = tl.load(x_row + c, mask=c < n_cols, other=0.0).to(tl.float32)
        t += tl.load(residual_row + c, mask=c < n_cols, other=0.0).to(tl.float32)
        acc += t * t
    root_n = tl.sqrt(n_cols * 1.0)
    r = root_n * tl.rsqrt(tl.sum(acc, axis=0) + eps)
    for i in range(TILES):
        c = i * TILE + cols
        ok = c < n_cols
        x = tl.load(x_row + c, mask=ok, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + c, mask=ok, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + c, mask=ok, other=0.0).to(tl.float32)
        total = (x + residual).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * stride_total + c, total, mask=ok)
        out = total.to(tl.float32) * r * weight
        tl.store(out_ptr + row * stride_out + c, out.to(out_ptr.dtype.element_ty), mask=ok)


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
    strides = x.stride(0), residual.stride(0), out.stride(0), total.stride(0)
    add_rms_norm_kernel[(n_rows,)](x, residual, weight, out, total, n_cols, *strides, 1e-5)
    return out, total
