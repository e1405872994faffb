# labs/lab4_production_slice/layer_norm.py | right | right
"""LayerNorm: lanes add up their own columns, and the last blocks of a row are stored first."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The second sweep also adds up the differences themselves: what the first sweep rounded away.
    """
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + lanes, N_COLS)
    guess = tl.sum(sums, axis=0) / N_COLS

    first = tl.zeros((BLOCK,), dtype=tl.float32)
    second = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        apart = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - guess, 0.0)
        first += apart
        second += apart * apart
    drift = tl.sum(first, axis=0) / N_COLS
    variance = tl.sum(second, axis=0) / N_COLS - drift * drift
    return guess + drift, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
    # The block that was loaded last is the one that a cache still has.
    for done in range(0, N_COLS, BLOCK):
        cols = (N_COLS - 1) // BLOCK * BLOCK - done + tl.arange(0, BLOCK)
        scale = load(weight_ptr, cols, N_COLS) * rstd
        shift = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, (load(x_row, cols, N_COLS) - mean) * scale + shift)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x; the result goes to `out`."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    on(layer_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        bias,
        out,
        stride_x=x.stride(0),
        stride_y=out.stride(0),
        eps=eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
