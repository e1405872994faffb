# labs/lab4_production_slice/layer_norm.py | error | layer_norm_kernel multiplies a (ROWS, BLOCK) tile by rstd of shape (ROWS,): `(x - mean[:, None]) * rstd` cannot be broadcast (4 against at least 16 columns) and raises; it should be rstd[:, None].
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE_ROWS = 4


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of one row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
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
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; a program has ROWS rows next to each other."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = (rows < n_rows)[:, None]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]

    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tl.load(x_rows + cols, mask=there & (cols < N_COLS), other=0.0).to(tl.float32)
        total += tl.sum(x, axis=1)
    mean = total / N_COLS

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = there & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        d = tl.where(inside, x - mean[:, None], 0.0)
        squares += tl.sum(d * d, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = there & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = (x - mean[:, None]) * rstd * w + b
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = max(16, min(block_of(n_cols), 4096))
    on(layer_norm_kernel, x)[(triton.cdiv(n_rows, TILE_ROWS),)](
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
        ROWS=TILE_ROWS,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
