# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MOST_PROGRAMS = 8192  # each takes every MOST_PROGRAMS-th row


@triton.jit
def rstd_of(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps), from the squares of a row, lane by lane."""
    # torch.compile passes eps as fp64.
    return tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows i, i + programs, i + 2 * programs, ...

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(axis=0).to(tl.int64)
    for i in range(first, n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if N_COLS <= BLOCK:
            # The row is one block, and is read once.
            x = load(x_row, lanes, N_COLS)
            rstd = rstd_of(x * x, eps, N_COLS)
            store(y_row, lanes, N_COLS, x * rstd * load(weight_ptr, lanes, N_COLS))
        else:
            squares = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                squares += x * x
            rstd = rstd_of(squares, eps, N_COLS)
            # From the end of the row to its start: what was read last may still be in the cache.
            for back in range(0, N_COLS, BLOCK):
                cols = (N_COLS - 1) // BLOCK * BLOCK - back + lanes
                y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
                store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(min(n_rows, MOST_PROGRAMS),)]
    launch(
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
