# gpu-programming/triton-kernels/add_rms_norm.py | error | Helper `summed`: `(a + b).to(total_ptr.dtype)` casts numbers to the type of the pointer, which Triton refuses (cannot cast fp32 to pointer). It should be `total_ptr.dtype.element_ty`.
"""Residual addition and RMS normalisation in one pass over memory, for rows of any length, autotuned."""

import torch
import triton
import triton.language as tl

EPS = 1e-5

# From 8 numbers for each thread, one load of 16 bytes in 16 bits, to 32: more do not stay in registers.
CONFIGS = [
    triton.Config({"TILE": tile}, num_warps=tile // (32 * each))
    for tile in (1024, 2048, 4096, 8192, 16384)
    for each in (16, 32)
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: a whole row in a tile where one is wide enough, else the widest ones."""
    size = min(max(triton.next_power_of_2(named_args["n_cols"]), 1024), 16384)
    return [config for config in configs if size // 2 <= config.kwargs["TILE"] <= size]


@triton.jit
def summed(x_row, residual_row, total_ptr, offs, n_cols):
    """x + residual at these columns, rounded as it will be stored; 0 past the end of the row."""
    a = tl.load(x_row + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    b = tl.load(residual_row + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    return (a + b).to(total_ptr.dtype)


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

    partial = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, TILES * TILE, TILE):
        t = summed(x_row, residual_row, total_ptr, start + cols, n_cols).to(tl.float32)
        partial += t * t
    inverse = 1.0 / tl.sqrt(tl.sum(partial, axis=0) / n_cols + eps)

    for start in range(0, TILES * TILE, TILE):
        offs = start + cols
        t = summed(x_row, residual_row, total_ptr, offs, n_cols)
        w = tl.load(weight_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = t.to(tl.float32) * inverse * w
        tl.store(total_ptr + row * stride_total + offs, t, mask=offs < n_cols)
        tl.store(out_ptr + row * stride_out + offs, y, mask=offs < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None) -> tuple[torch.Tensor, torch.Tensor]:
    """x + residual, and its rows divided by their root mean square and scaled: out and total, in this order.

    x and residual are (n_rows, n_cols) of one dtype, fp32, fp16 or bf16, columns contiguous, rows any number
    of elements apart; weight is (n_cols,). The results go to `out` and `total`, like x, where they are given;
    neither may share memory with an input, because the autotuner runs the kernel several times.
    """
    if out is None:
        out = torch.empty_like(x)
    if total is None:
        total = torch.empty_like(x)
    strides = [tensor.stride(0) for tensor in (x, residual, out, total)]
    add_rms_norm_kernel[(x.shape[0],)](x, residual, weight, out, total, x.shape[1], *strides, EPS)
    return out, total
