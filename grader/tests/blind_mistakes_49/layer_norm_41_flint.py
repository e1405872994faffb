# labs/lab4_production_slice/layer_norm.py | right | Unusual: one sweep for the statistics, each block with its own mean and squares, joined to those before it by the formula of Chan, Golub and LeVeque; the second sweep goes from the last block back to the first.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

WIDE = 8192  # columns of a block at most


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32, in one sweep.

    Each block has its own mean, and squares of differences from it. A block is joined to those before it by
    the formula of Chan, Golub and LeVeque: the means are `delta` apart.
    """
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        count = tl.minimum(N_COLS - start, BLOCK)
        here = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - here, 0.0)
        delta = here - mean
        share = count / (start + count)
        mean += delta * share
        squares += tl.sum(d * d, axis=0) + delta * (delta * (start * share))
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    The second sweep goes from the last block back to the first: what was read last is still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    sizes = {"N_COLS": n_cols, "BLOCK": min(block_of(n_cols), WIDE)}
    on(layer_norm_kernel, x)[(n_rows,)](x, weight, bias, out, x.stride(0), out.stride(0), eps, **sizes)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
