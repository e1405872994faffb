# labs/lab4_production_slice/layer_norm.py | error | In layer_norm_kernel, in the loop of the squares, `x - mean` subtracts a block of shape (ROWS,) from one of shape (ROWS, BLOCK), whose shapes do not go together (4 and at least 16). It should be x - mean[:, None].
"""LayerNorm, four rows per program as a 2-D block."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ROWS_PER_PROGRAM = 4


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of one row, for the files that import it."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS))
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(d * d)
    variance = squares / N_COLS
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
    ROWS: tl.constexpr,
):
    """Program i has rows i * ROWS to i * ROWS + ROWS - 1."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = row_ok[:, None] & (cols < N_COLS)[None, :]
        sums += tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=1) / N_COLS

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = row_ok[:, None] & (cols < N_COLS)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - mean, 0.0)
        squares += d * d
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        col_ok = cols < N_COLS
        inside = row_ok[:, None] & col_ok[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        y = (x - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = max(16, min(block_of(n_cols), 1024))
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    on(layer_norm_kernel, x)[grid](
        x,
        weight,
        bias,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        ROWS=ROWS_PER_PROGRAM,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
