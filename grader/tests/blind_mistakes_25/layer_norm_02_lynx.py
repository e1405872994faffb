# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd, the line of `m2` stands before the line that updates `mean`: the cross term is delta * delta * width instead of delta * delta * width * (columns before) / (columns so far), so the variance is too large for rows of more than one block (over 2048 columns); it shows in fp32, and in 16 bits where the means of the blocks differ. `mean` must be updated first, so that `block_mean - mean` uses the new mean.
"""LayerNorm over rows of any length, and the same as an operator.

One sweep for the statistics: each block has its own mean and its own sum of squared differences from it, and these
are merged into those of the blocks before (Chan, Golub and LeVeque).
"""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

WIDTH = 2048
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8)]


@triton.jit
def block_moments(x_row, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean, sum of squared differences from it, and number of columns, of the block that begins at `start`."""
    cols = start + tl.arange(0, BLOCK)
    x = load(x_row, cols, N_COLS)
    width = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
    mean = tl.sum(x, axis=0) / width
    d = tl.where(cols < N_COLS, x - mean, 0.0)
    return mean, tl.sum(d * d, axis=0), width


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    mean, m2, seen = block_moments(x_row, 0, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        block_mean, block_m2, width = block_moments(x_row, start, N_COLS, BLOCK)
        seen += width
        delta = block_mean - mean
        m2 += block_m2 + delta * (block_mean - mean) * width
        mean += delta * width / seen
    variance = m2 / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = (load(x_row, cols, N_COLS) - mean) * rstd
        y = y * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), WIDTH)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
