# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm by programs that stroll over the rows; a long row is read forwards, then backwards.

Backwards, because the blocks that were read last are the ones that the cache still has.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

STROLLERS = 4096  # programs at most


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def stroll(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i has rows i, i + programs, i + 2 * programs, ..."""
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK  # where the last block of a row starts
    lanes = tl.arange(0, BLOCK)
    floor = tl.cast(eps, tl.float32)
    # A row of one block meets the same weights in all rows.
    first_weights = load(weight_ptr, lanes, N_COLS)
    for r in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(r, tl.int64)
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if LAST == 0:
            x = load(x_row, lanes, N_COLS)
            rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + floor)
            store(y_row, lanes, N_COLS, x * rstd * first_weights)
        else:
            squares = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                squares += x * x
            rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + floor)
            for done in range(0, N_COLS, BLOCK):
                cols = LAST - done + lanes
                y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
                store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    programs = min(n_rows, STROLLERS)
    on(stroll, x)[(programs,)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
