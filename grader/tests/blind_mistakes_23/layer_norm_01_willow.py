# labs/lab4_production_slice/layer_norm.py | wrong everywhere | Helper `affine` returns `(n + shift) * scale`, so the bias is multiplied by the weight, too. It should be `n * scale + shift`. layer_norm_forward is wrong in every case whose weight is not 1 and bias not 0; mean_and_rstd is right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MOST = 8192  # programs; each goes on to another row until none is left


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
        cols = start + lanes
        away = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += away * away
    variance = tl.sum(squares, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def affine(n, scale, shift):
    """What follows the normalisation: a shift and a scale for each column."""
    return (n + shift) * scale


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes rows i, i + programs, i + 2 * programs and so on."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            y = affine(n, load(weight_ptr, cols, N_COLS), load(bias_ptr, cols, N_COLS))
            store(y_row, cols, N_COLS, y)
        row += tl.num_programs(axis=0)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(min(n_rows, MOST),)]
    launch(
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
