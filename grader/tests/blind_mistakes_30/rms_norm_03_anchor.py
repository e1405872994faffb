# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_forward gives each of at most 132 programs `x.shape[0] // programs` rows, rounded down, so the last x.shape[0] % 132 rows are never computed nor written. Shows for more than 132 rows whose number is no multiple of 132 (as 149 rows: rows 132 to 148 are missing). The share should be rounded up by triton.cdiv, with a check in the kernel that the row exists, or a program should go on in steps of the number of programs.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 132  # the SMs of an H200


@triton.jit
def sum_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of a row, in fp32."""
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    return tl.sum(squares, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, rows_each, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows_each rows, from i * rows_each on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    for i in range(rows_each):
        row = first + i
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        squares = sum_of_squares(x_row, N_COLS, BLOCK)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = load(x_row, cols, N_COLS) * rstd
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    programs = min(PROGRAMS, x.shape[0])
    rows_each = x.shape[0] // programs
    cols = x.shape[1]
    launch = on(rms_norm_kernel, x)[(programs,)]
    launch(x, weight, out, x.stride(0), out.stride(0), rows_each, eps, N_COLS=cols, BLOCK=block_of(cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
