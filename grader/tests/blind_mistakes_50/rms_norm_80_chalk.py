# labs/lab4_production_slice/rms_norm.py | contract | In `rms_norm_forward`, `out = x.new_empty_strided(x.shape, x.stride())`: without `out` the result must be a new contiguous tensor, as `torch.empty(x.shape, ...)` or `empty_like` gives. The values are right, but where x is padded and no `out` is given the result has gaps between its rows.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2112  # at most: 16 for each SM of an H200; each of them walks over the rows


@triton.jit
def sum_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sum of the squares of a row, in fp32."""
    squares = tl.full([], 0.0, tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    return squares


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i, and on in steps of all programs.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    x_row = x_ptr + tl.cast(program, tl.int64) * stride_x
    y_row = y_ptr + tl.cast(program, tl.int64) * stride_y
    x_step = tl.cast(programs, tl.int64) * stride_x
    y_step = tl.cast(programs, tl.int64) * stride_y
    for _ in range(program, n_rows, programs):
        mean_square = sum_of_squares(x_row, N_COLS, BLOCK) / N_COLS
        rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
            store(y_row, cols, N_COLS, y)
        x_row += x_step
        y_row += y_step


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty_strided(x.shape, x.stride())
    on(rms_norm_kernel, x)[(min(n_rows, PROGRAMS),)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
