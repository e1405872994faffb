# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel`, `tl.sum((x * x).to(tl.float32), axis=0)` (both branches) squares in the dtype of x and converts afterwards; it should convert x to fp32 before it is squared. In fp16 the square of any |x| >= 256 is inf, rstd is 0, and the whole row of y is 0 (fp16 rows that are large or far from 0). fp32, bf16 and small fp16 values are right.
"""RMSNorm over rows of any length by programs that stay, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, on
from torch.library import triton_op

PROGRAMS = 2048  # at most: more rows than that are dealt out to them
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def scaled_to(values, rstd, weight, dtype: tl.constexpr):
    """Return values * rstd * weight, computed in fp32 and rounded once."""
    return (values.to(tl.float32) * rstd * weight.to(tl.float32)).to(dtype)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has the rows i, i + num_programs, ...

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns. A row of one
    block is read once, and so is the weight then, for all rows of the program.
    """
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    small = tl.cast(eps, tl.float32)
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        inside = lanes < N_COLS
        weight = tl.load(weight_ptr + lanes, mask=inside, other=0.0)
        for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
            row = tl.cast(i, tl.int64)
            x = tl.load(x_ptr + row * stride_x + lanes, mask=inside, other=0.0)
            squares = tl.sum((x * x).to(tl.float32), axis=0)
            rstd = tl.rsqrt(squares / N_COLS + small)
            tl.store(y_ptr + row * stride_y + lanes, scaled_to(x, rstd, weight, dtype), mask=inside)
    else:
        for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
            row = tl.cast(i, tl.int64)
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            squares = 0.0
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0)
                squares += tl.sum((x * x).to(tl.float32), axis=0)
            rstd = tl.rsqrt(squares / N_COLS + small)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0)
                weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0)
                tl.store(y_row + cols, scaled_to(x, rstd, weight, dtype), mask=cols < N_COLS)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
