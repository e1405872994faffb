# labs/lab4_production_slice/rms_norm.py | corner | `rms_norm_kernel`: `y_row = y_ptr + (row * stride_y).to(tl.int64)` converts behind the product, which wraps in int32; it should be `row.to(tl.int64) * stride_y`, as for x. Shows where rows of the result lie beyond 2^31 elements (stores out of bounds, rows of `out` unwritten).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

ROWS = 2  # rows of a program, one after the other


@triton.jit
def one_row(x_row, weight_ptr, y_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise, scale and store one row."""
    lanes = tl.arange(0, BLOCK)
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += tl.sum(x * x, axis=0)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    rstd = 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        weight = load(weight_ptr, start + lanes, N_COLS)
        store(y_row, start + lanes, N_COLS, x * rstd * weight)


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
    PER_PROGRAM: tl.constexpr,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; a program computes PER_PROGRAM rows.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    first = tl.program_id(axis=0) * PER_PROGRAM
    for i in tl.static_range(PER_PROGRAM):
        row = first + i
        if row < n_rows:
            x_row = x_ptr + row.to(tl.int64) * stride_x
            y_row = y_ptr + (row * stride_y).to(tl.int64)
            one_row(x_row, weight_ptr, y_row, eps, N_COLS, BLOCK)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, ROWS),)]
    strides = x.stride(0), out.stride(0)
    launch(x, weight, out, n_rows, *strides, eps, PER_PROGRAM=ROWS, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
