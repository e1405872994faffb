# labs/lab4_production_slice/layer_norm.py | wrong everywhere | layer_norm_kernel multiplies the whole sum by rstd: `((x - mean) * weight + bias) * rstd`, so the bias is scaled, too; must be (x - mean) * rstd * weight + bias. Shows wherever bias is not 0 and the deviation of the row is not 1.
"""LayerNorm over rows of any length: statistics first, then one sweep that applies them."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def row_sum(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of a row, lane by lane first."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lanes += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    return tl.sum(lanes, axis=0)


@triton.jit
def row_squares(x_row, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum of the squared differences from the mean."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        lanes += d * d
    return tl.sum(lanes, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a row and 1 / sqrt(variance + eps)."""
    mean = row_sum(x_row, N_COLS, BLOCK) / N_COLS
    variance = row_squares(x_row, mean, N_COLS, BLOCK) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        # one multiply-add, then one product
        y = ((load(x_row, cols, N_COLS) - mean) * weight + bias) * rstd
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
