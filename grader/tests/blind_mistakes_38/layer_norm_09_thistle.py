# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) In mean_and_rstd the variance is `spread / (N_COLS - 1 if N_COLS > 1 else 1)`; it should be divided by N_COLS. Shows in (nearly) every case with more than one column, more in short rows. (2) layer_norm_kernel has one `stride` for x and y, and layer_norm_forward hands it x.stride(0); rows of y should start at row * out.stride(0). Shows where the row strides of x and out differ (x or out padded), with more than one row: rows land in wrong places, with a padded x past the end of out as well.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def centred(x_row, cols, mean, N_COLS: tl.constexpr):
    """Return x - mean at `cols`, and 0 past the end of the row."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        d = centred(x_row, start + lanes, mean, N_COLS)
        squares += d * d
    spread = tl.sum(squares, axis=0)
    variance = spread / (N_COLS - 1 if N_COLS > 1 else 1)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, y_ptr, weight_ptr, bias_ptr, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns.
    """
    offset = tl.program_id(axis=0).to(tl.int64) * stride
    mean, rstd = mean_and_rstd(x_ptr + offset, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = centred(x_ptr + offset, cols, mean, N_COLS) * rstd
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        store(y_ptr + offset, cols, N_COLS, n * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, out, weight, bias, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
