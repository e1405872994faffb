# labs/lab4_production_slice/layer_norm.py | wrong everywhere | bias is added to the normalised row before the weight multiplies it, (n + bias) * weight; it must be n * weight + bias; shows wherever bias is not 0 and weight is not 1
"""LayerNorm, several short rows in one program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ELEMENTS = 2048  # of a tile, if the rows are short enough


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of one row (layer_norm_linear wants it row by row)."""
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        diff = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += diff * diff
    variance = tl.sum(squares, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def load_tile(ptr, rows, cols, stride, n_rows, n_cols):
    """A tile in fp32, 0 outside of the matrix."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    """Program i normalises ROWS rows, from row i * ROWS on, BLOCK columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS)
    mean = tl.sum(acc, axis=1)[:, None] / N_COLS

    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        diff = load_tile(x_ptr, rows, cols, stride_x, n_rows, N_COLS) - mean
        diff = tl.where(cols < N_COLS, diff, 0.0)
        acc += diff * diff
    variance = tl.sum(acc, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load_tile(x_ptr, rows, cols, stride_x, n_rows, N_COLS) - mean) * rstd
        # one row of weights and biases for all rows of the tile
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        y = (n + bias) * weight
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    rows = max(1, ELEMENTS // block)
    grid = (triton.cdiv(n_rows, rows),)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, ROWS=rows
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
