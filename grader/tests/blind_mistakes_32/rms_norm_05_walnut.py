# labs/lab4_production_slice/rms_norm.py | two mistakes | 1) rms_norm_forward launches `max(1, n_rows // ROWS)` programs: with more than 4 rows and no multiple of 4 the last rows are never written; it should be triton.cdiv(n_rows, ROWS). 2) rms_norm_kernel loads the weight once, at the columns of the first block (`load(weight_ptr, lanes, N_COLS)` before the loop): rows longer than a block of 2048 get the weights of the first block again; it should be loaded at `cols` in the second loop.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ROWS = 4  # rows of a program: short rows alone would leave most of its threads idle


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has ROWS rows, and BLOCK columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    weight = load(weight_ptr, lanes, N_COLS)

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    power = tl.sum(squares, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (max(1, n_rows // ROWS),)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), 2048),
        ROWS=ROWS,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
