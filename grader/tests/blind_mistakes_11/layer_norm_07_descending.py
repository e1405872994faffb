# labs/lab4_production_slice/layer_norm.py | right | several rows for each program, one after the other; blocks from the last to the first; lanes keep their own sums and are reduced once; the mean is taken twice (a rough one, then the mean of the differences from it), with the variance corrected by its square
"""LayerNorm: a program has PER_PROGRAM rows and goes over each from its end to its beginning."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

PER_PROGRAM = 2


@triton.jit
def piece(row_ptr, which, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Block number `which` from the end, in fp32, and its columns."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    cols = (BLOCKS - 1 - which) * BLOCK + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32), cols


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of the row at x_row."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    lanes = tl.zeros((BLOCK,), tl.float32)
    for which in range(BLOCKS):
        x, cols = piece(x_row, which, N_COLS, BLOCK)
        lanes += x
    rough = tl.sum(lanes, axis=0) / N_COLS
    lanes = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for which in range(BLOCKS):
        x, cols = piece(x_row, which, N_COLS, BLOCK)
        d = tl.where(cols < N_COLS, x - rough, 0.0)
        lanes += d
        squares += d * d
    rest = tl.sum(lanes, axis=0) / N_COLS
    variance = tl.maximum(tl.sum(squares, axis=0) / N_COLS - rest * rest, 0.0)
    return rough + rest, 1.0 / tl.sqrt_rn(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rows_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    PER_PROGRAM: tl.constexpr,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i has the rows from i * PER_PROGRAM on."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    first = tl.program_id(0) * PER_PROGRAM
    for row in range(first, tl.minimum(first + PER_PROGRAM, n_rows)):
        x_row = x_ptr + tl.cast(row, tl.int64) * stride_x
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for which in range(BLOCKS):
            x, cols = piece(x_row, which, N_COLS, BLOCK)
            weight, _ = piece(weight_ptr, which, N_COLS, BLOCK)
            bias, _ = piece(bias_ptr, which, N_COLS, BLOCK)
            y = (x - mean) * rstd * weight + bias
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < N_COLS)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of the rows of x."""
    n_rows, n_cols = x.shape
    y = x.new_empty((n_rows, n_cols)) if out is None else out
    sizes = {"PER_PROGRAM": PER_PROGRAM, "N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    grid = (triton.cdiv(n_rows, PER_PROGRAM),)
    on(rows_kernel, x)[grid](x, weight, bias, y, n_rows, x.stride(0), y.stride(0), eps, **sizes)
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
