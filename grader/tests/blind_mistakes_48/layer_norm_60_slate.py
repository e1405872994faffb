# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In `layer_norm_kernel` the line `offset = load(bias_ptr, cols, N_COLS) - means * rstds` lacks the weight: the mean is not multiplied by it, though x is. It should be `load(bias_ptr, cols, N_COLS) - means * factor`. y is off by mean * rstd * (weight - 1), so it shows in all cases whose rows have a mean other than 0 and whose weight is not 1, most of all in rows far from 0.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE = 2048  # elements of a tile of short rows


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        off = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(off * off, axis=0)
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def tile_statistics(starts, alive, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr, HEIGHT: tl.constexpr):
    """The same for HEIGHT rows at once: `starts` points to their first elements, `alive` says which exist."""
    totals = tl.zeros((HEIGHT,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)[None, :]
        x = tl.load(starts + cols, mask=alive & (cols < N_COLS), other=0.0).to(tl.float32)
        totals += tl.sum(x, axis=1)
    means = (totals / N_COLS)[:, None]
    squares = tl.zeros((HEIGHT,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)[None, :]
        x = tl.load(starts + cols, mask=alive & (cols < N_COLS), other=0.0).to(tl.float32)
        off = tl.where(cols < N_COLS, x - means, 0.0)
        squares += tl.sum(off * off, axis=1)
    return means, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))[:, None]


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
    HEIGHT: tl.constexpr,
):
    """Program i normalises rows i * HEIGHT to (i + 1) * HEIGHT - 1, BLOCK columns at a time.

    Scale and shift of an element are folded into one multiplication and one addition.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    alive = rows < n_rows
    x_starts = x_ptr + rows * stride_x
    y_starts = y_ptr + rows * stride_y
    means, rstds = tile_statistics(x_starts, alive, eps, N_COLS, BLOCK, HEIGHT)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)[None, :]
        inside = alive & (cols < N_COLS)
        x = tl.load(x_starts + cols, mask=inside, other=0.0).to(tl.float32)
        factor = rstds * load(weight_ptr, cols, N_COLS)
        offset = load(bias_ptr, cols, N_COLS) - means * rstds
        y = x * factor + offset
        tl.store(y_starts + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols)."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    height = min(32, max(1, TILE // block))
    grid = (triton.cdiv(n_rows, height),)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, HEIGHT=height
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
