# labs/lab4_production_slice/rms_norm.py | corner | the weight is loaded once, before the second loop, at the columns of the first block, and used for all blocks of the row; must be loaded at start + lanes in each block. Shows in rows of more than one block, longer than 8192 columns, from column 8192 on; shorter rows and a constant weight are right.
"""RMSNorm; squares are added lane by lane and reduced once."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

WIDTH = 8192  # columns of a block at most


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of a row."""
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += x * x
    mean = tl.sum(squares, axis=0) / N_COLS
    return 1.0 / tl.sqrt(mean + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    rstd = inverse_rms(x_row, eps, N_COLS, BLOCK)
    lanes = tl.arange(0, BLOCK)
    # The same weight for all rows: loaded once, it stays in registers.
    weight = load(weight_ptr, lanes, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        store(y_row, start + lanes, N_COLS, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    block = min(WIDTH, triton.next_power_of_2(n_cols))
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
