# labs/lab4_production_slice/layer_norm.py | right | Unusual: at most 2048 persistent programs walk over the rows in a while loop, a row of one block is loaded once for its statistics, and the variance of a longer row is added up from its last block to its first.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2048  # at most; each takes every 2048th row


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        # The whole row is in registers: no loop at all.
        x = load(x_row, lanes, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(lanes < N_COLS, x - mean, 0.0)
        variance = tl.sum(d * d, axis=0) / N_COLS
    else:
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            sums += load(x_row, start + lanes, N_COLS)
        mean = tl.sum(sums, axis=0) / N_COLS
        # Backwards: what was loaded last is the most likely to be in the cache still.
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for done in range(0, N_COLS, BLOCK):
            cols = (N_COLS - 1) // BLOCK * BLOCK - done + lanes
            d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
            squares += d * d
        variance = tl.sum(squares, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes rows i, i + programs, ..."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            n = (load(x_row, start + lanes, N_COLS) - mean) * rstd
            y = n * load(weight_ptr, start + lanes, N_COLS) + load(bias_ptr, start + lanes, N_COLS)
            store(y_row, start + lanes, N_COLS, y)
        row += tl.num_programs(axis=0)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(min(n_rows, PROGRAMS),)]
    launch(
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
