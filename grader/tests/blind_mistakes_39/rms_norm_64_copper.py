# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) rms_norm_forward hands each of min(n_rows, 132) programs `n_rows // programs` rows, rounded down: the last n_rows % programs rows are never written; shows where n_rows is above 132 and no multiple of it (149 rows, 1000 rows, 32768 rows); it should be rounded up, triton.cdiv, with a guard for rows past the end (or strided rows). (2) rms_norm_kernel adds eps to each lane in `lane_squares += x * x + eps`, also to the lanes past the end of the row, so the mean has eps * lanes / N_COLS instead of eps; shows where N_COLS does not fill its blocks (no power of two, or above 16384 no multiple of it) and eps matters: eps = 1 or narrow rows; it should be added once, tl.sum(lane_squares) / N_COLS + eps.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 132  # multiprocessors of an H200


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    rows_each,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows_each rows, from i * rows_each on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    eps = tl.cast(eps, tl.float32)
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    x_row = x_ptr + first * stride_x
    y_row = y_ptr + first * stride_y
    for _ in range(0, rows_each):
        lane_squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
            lane_squares += x * x + eps
        rstd = tl.rsqrt(tl.sum(lane_squares, axis=0) / N_COLS)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = load(x_row, cols, N_COLS) * rstd
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))
        x_row += stride_x
        y_row += stride_y


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    programs = min(n_rows, PROGRAMS)
    rows_each = n_rows // programs
    on(rms_norm_kernel, x)[(programs,)](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        rows_each,
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
