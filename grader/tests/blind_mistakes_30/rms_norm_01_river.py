# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) rms_norm_kernel divides eps by the number of columns, too: rsqrt((squares + eps) / N_COLS) instead of rsqrt(squares / N_COLS + eps); shows for rows of small values (near 0.001) and for a large eps as 1. (2) rms_norm_forward hands x.stride(0) to the kernel as stride_y as well, instead of out.stride(0); shows where the rows of x and of out lie differently far apart, as with a padded out, or a padded x and no out.
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
    """RMSNorm of row i of x in program i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt((squares + tl.cast(eps, tl.float32)) / N_COLS)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    weight is (n_cols,) of that dtype. The result goes to `out`, like x, where one is given. After Zhang and
    Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    stride = x.stride(0)
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, stride, stride, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
