# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) rms_norm_kernel calls `inverse_rms(squares, N_COLS)` without eps, so the default 1e-6 of the helper is used: wrong for every other eps (0 with narrow rows, 1), right with the default; it should be `inverse_rms(squares, N_COLS, eps)`. (2) rms_norm_kernel loads the weight once before the loop, at the columns of block 0, and uses it for all blocks: in rows longer than one block (more than 16384 columns) y is wrong from column 16384 on; it should be loaded at `start + columns` in the loop
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(squares, n_cols, eps=1e-6):
    """Return 1 / sqrt(mean of the squares + eps), from their sum."""
    return tl.rsqrt(squares / n_cols + tl.cast(eps, tl.float32))


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
    columns = tl.arange(0, BLOCK)
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + columns, N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = inverse_rms(squares, N_COLS)
    weight = load(weight_ptr, columns, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + columns, N_COLS)
        store(y_row, start + columns, N_COLS, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
