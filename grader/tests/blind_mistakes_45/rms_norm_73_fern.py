# labs/lab4_production_slice/rms_norm.py | corner | `tl.sum((x * x).to(tl.float32), axis=0)` in `sum_of_squares` squares in the dtype of x and converts afterwards; it should be x.to(tl.float32) before the product. In fp16, a value from 256 on has the square inf, so rstd and the row become 0; fp32, bf16 and small fp16 values are right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def sum_of_squares(x):
    """Return the sum of the squares of a block, in fp32."""
    return tl.sum((x * x).to(tl.float32), axis=0)


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
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        squares += sum_of_squares(tl.load(x_row + cols, mask=cols < N_COLS, other=0.0))
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
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
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
