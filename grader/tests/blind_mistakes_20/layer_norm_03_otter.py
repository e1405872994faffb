# labs/lab4_production_slice/layer_norm.py | error | layer_norm_kernel, second loop: `x - mean` subtracts a vector of ROWS (4) numbers from a ROWS x BLOCK tile with BLOCK >= 16, so the shapes are incompatible and nothing compiles; it should be `x - mean[:, None]`, as in the third loop.
"""LayerNorm over rows of any length; a program has four rows and walks over their columns tile by tile."""

import torch
import triton
import triton.language as tl
from rows import load, on
from torch.library import triton_op

ROWS_OF_A_PROGRAM = 4
TUNING = [triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)]


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a single row and 1 / sqrt(variance + eps), in fp32; layer_norm_linear needs it."""
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        away = tl.where(start + lanes < N_COLS, load(x_row, start + lanes, N_COLS) - mean, 0.0)
        sums += away * away
    variance = tl.sum(sums, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=TUNING, key=["N_COLS"])
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
    """Program i computes the rows i * ROWS to i * ROWS + ROWS - 1, as far as they exist."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = (rows < n_rows)[:, None]
    x_tile = x_ptr + (rows * stride_x)[:, None]
    y_tile = y_ptr + (rows * stride_y)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        total += tl.load(x_tile + cols, mask=real & (cols < N_COLS), other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=1) / N_COLS

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = real & (cols < N_COLS)
        x = tl.load(x_tile + cols, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - mean, 0.0)
        squares += d * d
    variance = tl.sum(squares, axis=1) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = real & (cols < N_COLS)
        x = tl.load(x_tile + cols, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = (x - mean[:, None]) * rstd[:, None] * w + b
        tl.store(y_tile + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width = min(max(triton.next_power_of_2(n_cols), 16), 1024)
    grid = (triton.cdiv(n_rows, ROWS_OF_A_PROGRAM),)
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
        BLOCK=width,
        ROWS=ROWS_OF_A_PROGRAM,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
