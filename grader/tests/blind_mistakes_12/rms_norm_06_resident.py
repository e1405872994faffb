# labs/lab4_production_slice/rms_norm.py | right | persistent programs: at most 1024 programs walk over the rows in a while loop, the weight of a short row is loaded once for all rows of the program; long rows go through the blocks backwards the second time
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 1024  # about 8 for each SM; each of them has many rows


@triton.jit
def inverse_rms(sum_of_squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean + eps)."""
    return tl.rsqrt(sum_of_squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes the rows i, i + programs, i + 2 programs, ..."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    programs = tl.num_programs(axis=0)

    if BLOCK >= N_COLS:
        weight = load(weight_ptr, lanes, N_COLS)
        while row < n_rows:
            x = load(x_ptr + row * stride_x, lanes, N_COLS)
            rstd = inverse_rms(tl.sum(x * x, axis=0), eps, N_COLS)
            store(y_ptr + row * stride_y, lanes, N_COLS, x * rstd * weight)
            row += programs
    else:
        BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
        while row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            squares = tl.zeros((BLOCK,), dtype=tl.float32)
            for k in range(BLOCKS):
                x = load(x_row, k * BLOCK + lanes, N_COLS)
                squares += x * x
            rstd = inverse_rms(tl.sum(squares, axis=0), eps, N_COLS)
            # from the last block to the first: the last ones are still in the cache
            for k in range(BLOCKS):
                cols = (BLOCKS - 1 - k) * BLOCK + lanes
                x = load(x_row, cols, N_COLS)
                store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))
            row += programs


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
