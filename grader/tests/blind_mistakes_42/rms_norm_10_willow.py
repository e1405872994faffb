# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel`, `squares += (x * x).to(tl.float32)` squares x, which was loaded by `tl.load` in its own dtype, before the conversion to fp32; it should be `x = tl.load(...).to(tl.float32)` (or `load`) first, and then `squares += x * x`. In fp16 every number of more than 255.9 in size has the square inf, so rstd and the whole row are 0; fp32 is right, and bf16 and small fp16 numbers stay within the tolerance.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2112  # at most so many programs, each of which goes from row to row
WIDTH = 4096  # columns of a block at most


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows i, i + programs, and so on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y

        # Each lane adds up its own columns; one reduction for each row.
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0)
            squares += (x * x).to(tl.float32)
        power = tl.sum(squares, axis=0) / N_COLS
        rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))

        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = load(x_row, cols, N_COLS) * rstd
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))
        row += tl.num_programs(axis=0)


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
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
