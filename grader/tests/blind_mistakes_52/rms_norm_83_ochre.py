# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) In `rstd_of`, `tl.rsqrt(tl.maximum(squares / N_COLS, eps))` should be `tl.rsqrt(squares / N_COLS + eps)`: it shows where the mean square of a row is not far above eps (rows of values near 0.001, eps = 1, or in fp32 a short row of small numbers). (2) In `rms_norm_kernel`, `weight = load(weight_ptr, lanes, N_COLS)` is loaded once and used for all blocks; it should be `load(weight_ptr, cols, N_COLS)` in the inner loop: rows of more than 8192 columns get the weight of block 0 in all later blocks.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 1056  # eight for each SM of an H200
WIDTH = 8192  # columns of a block: of so many both the row and the weight stay in registers


@triton.jit
def rstd_of(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of a row, in fp32."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return tl.rsqrt(tl.maximum(squares / N_COLS, tl.cast(eps, tl.float32)))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, n_rows, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes the rows i, i + programs and so on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time, and loads the
    weight once for all of its rows.
    """
    lanes = tl.arange(0, BLOCK)
    weight = load(weight_ptr, lanes, N_COLS)
    first = tl.program_id(axis=0).to(tl.int64)
    for row in range(first, n_rows, tl.num_programs(axis=0)):
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        rstd = rstd_of(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * weight)


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
        x.stride(0),
        out.stride(0),
        n_rows,
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
