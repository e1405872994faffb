# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) In `rms_norm_kernel`, `weight = tl.load(weight_ptr + lanes, ...)` stands before the loop and is used for all blocks; it should be loaded at `cols` in each block. Wrong for rows of more than 4096 columns, from column 4096 on. (2) `tl.rsqrt((tl.sum(squares, ...) + eps) / N_COLS)` divides eps by N_COLS too; it should be `tl.sum(squares, ...) / N_COLS + eps`. Wrong where eps counts: eps = 1, narrow rows.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 4096  # elements that a program holds at a time: several short rows, or a part of a long one


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    row_exists = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    lanes = tl.arange(0, BLOCK)[None, :]

    # The squares are added up lane by lane, and reduced once, behind the loop.
    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=row_exists & (cols < N_COLS), other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt((tl.sum(squares, axis=1, keep_dims=True) + tl.cast(eps, tl.float32)) / N_COLS)

    # The weight is the same for all rows of the tile: one load for all of them.
    weight = tl.load(weight_ptr + lanes, mask=lanes < N_COLS, other=0.0).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = row_exists & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), TILE)
    rows = min(16, TILE // block)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=rows, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
