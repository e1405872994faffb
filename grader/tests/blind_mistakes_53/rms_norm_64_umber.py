# labs/lab4_production_slice/rms_norm.py | contract | In `row_block`, `REACH: tl.constexpr = (N_COLS + 7) // 8 * 8` and the mask `cols < REACH` load up to 7 elements past the end of each row of x; the mask should be `cols < N_COLS`. `tl.where` drops them, so the numbers are right, but the space between rows is read, and behind the last row memory outside of the tensor; shows where the number of columns is no multiple of 8 (3, 127, 129, 1001, ...; not for 1 or 2 columns, whose block is no wider).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # at most; each goes on to further rows
WIDTH = 4096  # columns of a block at most


@triton.jit
def row_block(row_ptr, cols, N_COLS: tl.constexpr):
    """Return columns `cols` of a row in fp32, and 0 where the row has no such column."""
    REACH: tl.constexpr = (N_COLS + 7) // 8 * 8
    x = tl.load(row_ptr + cols, mask=cols < REACH, other=0.0)
    return tl.where(cols < N_COLS, x, 0.0).to(tl.float32)


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
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i and, in steps of the grid, others.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            part = row_block(x_row, start + lanes, N_COLS)
            squares += tl.sum(part * part, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = row_block(x_row, cols, N_COLS) * rstd
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))
        row += tl.num_programs(axis=0)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(min(n_rows, PROGRAMS),)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
