# labs/lab4_production_slice/layer_norm.py | right | Persistent programs take tiles of two rows in turns, rows of one block stay in registers in a branch of their own, and longer rows go through loops of 4096 columns.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

PROGRAMS = 256  # at most; each goes on with further tiles until all rows are done
ROWS_IN_TILE = 2
WIDTH = 4096


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(lanes < N_COLS, x - mean, 0.0)
        variance = tl.sum(d * d, axis=0) / N_COLS
    else:
        part = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            part += load(x_row, start + lanes, N_COLS)
        mean = tl.sum(part, axis=0) / N_COLS
        part_sq = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
            part_sq += d * d
        variance = tl.sum(part_sq, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def fetch(ptr, cols, inside):
    """A tile, or a part of a row, in fp32; zeros outside."""
    return tl.load(ptr + cols, mask=inside, other=0.0).to(tl.float32)


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
    """A program has tile i, then tile i + programs, and so on; a tile is ROWS rows."""
    small = tl.cast(eps, tl.float32)
    lanes = tl.arange(0, BLOCK)[None, :]
    step = tl.num_programs(axis=0) * ROWS
    for first in range(tl.program_id(axis=0) * ROWS, n_rows, step):
        rows = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        there = rows < n_rows
        x_rows = x_ptr + rows * stride_x
        y_rows = y_ptr + rows * stride_y
        if N_COLS <= BLOCK:
            inside = there & (lanes < N_COLS)
            x = fetch(x_rows, lanes, inside)
            mean = tl.sum(x, axis=1)[:, None] / N_COLS
            d = tl.where(inside, x - mean, 0.0)
            rstd = tl.rsqrt(tl.sum(d * d, axis=1)[:, None] / N_COLS + small)
            w = fetch(weight_ptr, lanes, lanes < N_COLS)
            b = fetch(bias_ptr, lanes, lanes < N_COLS)
            tl.store(y_rows + lanes, (d * rstd * w + b).to(y_ptr.dtype.element_ty), mask=inside)
        else:
            sums = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                sums += fetch(x_rows, cols, there & (cols < N_COLS))
            mean = tl.sum(sums, axis=1)[:, None] / N_COLS
            squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                inside = there & (cols < N_COLS)
                d = tl.where(inside, fetch(x_rows, cols, inside) - mean, 0.0)
                squares += d * d
            rstd = tl.rsqrt(tl.sum(squares, axis=1)[:, None] / N_COLS + small)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                inside = there & (cols < N_COLS)
                n = (fetch(x_rows, cols, inside) - mean) * rstd
                w = fetch(weight_ptr, cols, cols < N_COLS)
                b = fetch(bias_ptr, cols, cols < N_COLS)
                tl.store(y_rows + cols, (n * w + b).to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    programs = min(triton.cdiv(n_rows, ROWS_IN_TILE), PROGRAMS)
    on(layer_norm_kernel, x)[(programs,)](
        x,
        weight,
        bias,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDTH),
        ROWS=ROWS_IN_TILE,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
