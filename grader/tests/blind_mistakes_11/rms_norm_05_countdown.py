# labs/lab4_production_slice/rms_norm.py | right | goes over the row from its first block to its last for the squares and from the last to the first for the stores, so that the block loaded last is still in the cache; blocks of 4096 columns.
"""RMSNorm: forwards for the sum, backwards for the result."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

WIDTH = 4096


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, BLOCKS):
        x = load(x_row, i * BLOCK + lanes, N_COLS)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    for i in range(0, BLOCKS):
        cols = (BLOCKS - 1 - i) * BLOCK + lanes
        n = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(triton.next_power_of_2(n_cols), WIDTH),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
