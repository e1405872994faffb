# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd returns 1 / (sqrt(variance) + eps), with eps outside of the root; it should be 1 / sqrt(variance + eps). (2) write_row is given y_ptr + row * stride_x; the row of y begins at row * stride_y.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a row."""
    acc = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        acc += tl.sum(load(x_row, cols, N_COLS), axis=0)
    return acc / N_COLS


@triton.jit
def row_variance(x_row, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of the squares of the differences from the mean."""
    acc = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        centred = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        acc += tl.sum(centred * centred, axis=0)
    return acc / N_COLS


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row and the factor that brings its deviation to 1, in fp32."""
    mean = row_mean(x_row, N_COLS, BLOCK)
    variance = row_variance(x_row, mean, N_COLS, BLOCK)
    return mean, 1.0 / (tl.sqrt(variance) + tl.cast(eps, tl.float32))


@triton.jit
def write_row(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise, scale and shift a row."""
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        normed = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, normed * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    write_row(x_row, weight_ptr, bias_ptr, y_ptr + row * stride_x, mean, rstd, N_COLS, BLOCK)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = (x.stride(0), out.stride(0))
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(layer_norm_kernel, x)[(n_rows,)](x, weight, bias, out, *strides, eps, **sizes)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
