# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel: LAST, where the backward sweep starts, is `N_COLS // BLOCK * BLOCK`, which is N_COLS itself where BLOCK divides N_COLS, so the sweep starts one block too late and never stores columns 0 to BLOCK - 1. It should be `(N_COLS - 1) // BLOCK * BLOCK`; wrong for powers of two and multiples of BLOCK (at most 4096).
"""RMSNorm over rows of any length. The second sweep runs backwards: its first block is still in registers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    LAST: tl.constexpr = N_COLS // BLOCK * BLOCK

    x = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    # x is now the end of the row. Each step stores a block and fetches the one before it.
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + lanes
        store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))
        before = cols - BLOCK
        x = tl.load(x_row + before, mask=(before >= 0) & (before < N_COLS), other=0.0).to(tl.float32)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(4096, triton.next_power_of_2(n_cols))
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
