# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel, `squares += tl.sum(x * x, axis=0)`: squares is a block of BLOCK lanes, so the sum of a block of columns is added to every lane, and `tl.sum(squares, axis=0)` behind the loop counts it BLOCK times; y is too small by about sqrt(BLOCK) in all rows (only n_cols = 1, where BLOCK is 1, is right). It should be squares += x * x in the loop, or a scalar that is not summed again.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


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

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += tl.sum(x * x, axis=0)
    mean_square = tl.sum(squares, axis=0) / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
