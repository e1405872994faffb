# labs/lab4_production_slice/layer_norm.py | contract | `inside` loads x without a mask and replaces the lanes past the end afterwards by tl.where, so the values are right, but the space between the rows (and memory past the last row) is read; the contract says it is neither read nor written. Must be tl.load(..., mask=cols < N_COLS, other=0.0). Shows where BLOCK does not divide the row.
"""LayerNorm with two sweeps for the statistics and one for the result."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inside(x_row, cols, N_COLS: tl.constexpr, shift):
    """x - shift in fp32, and 0 in the lanes that the row does not have."""
    x = tl.load(x_row + cols).to(tl.float32)
    return tl.where(cols < N_COLS, x - shift, 0.0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(inside(x_row, start + tl.arange(0, BLOCK), N_COLS, 0.0), axis=0)
    mean /= N_COLS

    variance = 0.0
    for start in range(0, N_COLS, BLOCK):
        d = inside(x_row, start + tl.arange(0, BLOCK), N_COLS, mean)
        variance += tl.sum(d * d, axis=0)
    variance /= N_COLS
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
        n = inside(x_row, cols, N_COLS, mean) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of the rows of x, to `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    kernel = on(layer_norm_kernel, x)
    kernel[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
