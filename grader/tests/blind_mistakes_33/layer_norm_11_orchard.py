# labs/lab4_production_slice/layer_norm.py | contract | layer_norm_forward allocates the result with torch.empty_strided(x.shape, x.stride(), ...), so it has the row stride of x; where x has gaps between its rows and no `out` is given, the result is not contiguous, though the README asks for a new contiguous tensor; the numbers are right; it should be torch.empty(x.shape, ...) or torch.empty_like(x)
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: each block has a mean and a sum of squared differences of its own, which are merged with those
    of the columns before it, as Chan, Golub and LeVeque do.
    """
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        count = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
        x = load(x_row, cols, N_COLS)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        apart = block_mean - mean
        seen = start + count
        squares += tl.sum(d * d, axis=0) + apart * apart * count * (start / seen)
        mean += apart * (count / seen)
    variance = squares / N_COLS
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
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = (load(x_row, cols, N_COLS) - mean) * rstd
        y = y * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(layer_norm_kernel, x)[(n_rows,)](x, weight, bias, out, x.stride(0), out.stride(0), eps, **sizes)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
