# labs/lab4_production_slice/rms_norm.py | corner | In the first loop the squares of a block replace those of the blocks before (`per_lane = x * x`), so a row of more than one block, longer than 16384, is scaled by its last block alone; it should be `per_lane += x * x`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    # each lane keeps its own sum, all lanes are added once
    per_lane = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        per_lane = x * x
    mean_square = tl.sum(per_lane, axis=0) / N_COLS
    factor = 1.0 / tl.sqrt(mean_square + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        y = load(x_row, cols, N_COLS) * factor
        y = y * load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, into `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
