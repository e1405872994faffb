# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length; a program takes several rows where these are short."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 2048  # elements that a program holds at a time, if a block of one row is not wider than this


@triton.jit
def tile_of(starts, cols, present, N_COLS: tl.constexpr):
    """Columns `cols` of several rows in fp32, and 0 where there is no such row or column."""
    return tl.load(starts + cols, mask=present & (cols < N_COLS), other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows i * ROWS to i * ROWS + ROWS - 1."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    present = (rows < n_rows)[:, None]
    x_starts = x_ptr + rows[:, None] * stride_x
    y_starts = y_ptr + rows[:, None] * stride_y

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tile_of(x_starts, cols, present, N_COLS)
        squares += tl.sum(x * x, axis=1)
    # Rows that do not exist have no square: 1 keeps their root away from 0.
    squares = tl.where(rows < n_rows, squares, 1.0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))[:, None]

    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tile_of(x_starts, cols, present, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_starts + cols, y.to(y_ptr.dtype.element_ty), mask=present & (cols < N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x; the result goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    rows = max(1, TILE // block)
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)]
    launch(
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, ROWS=rows
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
