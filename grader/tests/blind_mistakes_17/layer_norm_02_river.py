# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd sets the lanes past the end to 0 only if N_COLS < BLOCK; in rows of several blocks whose last block is partly empty (n_cols > 16384 and no multiple of it) these lanes add mean * mean to the variance; the tl.where must apply always. (2) layer_norm_forward passes x.stride(0) twice: the second must be out.stride(0), so results whose rows lie at another distance than those of x are stored in the wrong places.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lanes = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    acc2 = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        diff = load(x_row, cols, N_COLS) - mean
        if N_COLS < BLOCK:
            diff = tl.where(cols < N_COLS, diff, 0.0)
        acc2 += diff * diff
    variance = tl.sum(acc2, axis=0) / N_COLS

    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        normed = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, normed * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
