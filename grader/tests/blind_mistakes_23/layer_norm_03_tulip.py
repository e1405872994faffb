# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd takes rsqrt(max(variance, eps)) where it should be rsqrt(variance + eps): a large eps, or rows of small variance, are wrong. (2) layer_norm_kernel loads `gamma` and `beta` once, at the columns of the first block, before the loop; each block needs its own columns (start + cols), so rows longer than a block (2048 columns) get a wrong weight and bias behind it.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

WIDTH = 2048  # a narrow block leaves room for several programs on a multiprocessor
TRIES = [triton.Config({}, num_warps=2), triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)]


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and one over its deviation, in fp32."""
    cols = tl.arange(0, BLOCK)
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row + start, cols, N_COLS - start), axis=0)
    mean = mean / N_COLS
    variance = 0.0
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        d = tl.where(cols < left, load(x_row + start, cols, left) - mean, 0.0)
        variance += tl.sum(d * d, axis=0)
    variance = variance / N_COLS
    # eps keeps us away from a division by 0.
    return mean, tl.rsqrt(tl.maximum(variance, tl.cast(eps, tl.float32)))


@triton.autotune(configs=TRIES, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One program for each row; the pointers move on from block to block, the lanes stay."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    # These do not depend on the row's statistics: start their loads early.
    gamma = load(weight_ptr, cols, N_COLS)
    beta = load(bias_ptr, cols, N_COLS)
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        n = (load(x_row + start, cols, left) - mean) * rstd
        store(y_row + start, cols, left, n * gamma + beta)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x, into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(WIDTH, triton.next_power_of_2(n_cols))
    kernel = on(layer_norm_kernel, x)
    kernel[(n_rows,)](x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
