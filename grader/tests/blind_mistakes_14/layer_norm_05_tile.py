# labs/lab4_production_slice/layer_norm.py | error | In layer_norm_kernel, `rstd` has shape (ROWS,) while the tile is (ROWS, BLOCK), so `(x - mean) * rstd` does not broadcast and the kernel does not compile (but for blocks of 4 columns); it should be `rstd[:, None]` (as `mean` has it).
"""LayerNorm, several rows to a program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    # for layer_norm_linear.py, which has single rows
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += d * d
    variance = tl.sum(squares, axis=0) / N_COLS
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
    """Program i has the rows from i * ROWS on, and takes BLOCK columns of each at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    row_ok = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    # mean
    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        acc += tl.load(x_rows + cols, mask=row_ok & (cols < N_COLS), other=0.0).to(tl.float32)
    mean = tl.sum(acc, axis=1)[:, None] / N_COLS

    # variance
    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = tl.load(x_rows + cols, mask=row_ok & (cols < N_COLS), other=0.0).to(tl.float32)
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        acc += d * d
    rstd = tl.rsqrt(tl.sum(acc, axis=1) / N_COLS + tl.cast(eps, tl.float32))

    # result
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        col_ok = cols < N_COLS
        x = tl.load(x_rows + cols, mask=row_ok & col_ok, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=row_ok & col_ok)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows_each = 4
    grid = (triton.cdiv(n_rows, rows_each),)
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
        BLOCK=min(block_of(n_cols), 2048),
        ROWS=rows_each,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
