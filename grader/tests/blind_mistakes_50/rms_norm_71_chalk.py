# labs/lab4_production_slice/rms_norm.py | wrong everywhere | In `reciprocal_rms`, `squares += tl.reduce(x, 0, add_squares)` with `add_squares(a, b) = a * a + b * b`: a reduction combines partial results, so they are squared again and again, and a row of one lane is not squared at all. It should be `tl.sum(x * x, axis=0)`. Wrong for all rows but those of two columns (y is 0 where the sum overflows).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def add_squares(a, b):
    """The squares of two numbers, added up."""
    return a * a + b * b


@triton.jit
def reciprocal_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return 1 / sqrt(mean(x * x) + eps) of a row of N_COLS numbers, in fp32."""
    squares = tl.full([], 0.0, tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        # Lanes past the end are 0, and so are their squares.
        squares += tl.reduce(x, 0, add_squares)
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    rstd = reciprocal_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = (x.stride(0), out.stride(0))
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
