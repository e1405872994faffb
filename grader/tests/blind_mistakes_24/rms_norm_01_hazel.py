# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel: `tl.sum(acc)` adds up the squares of all four rows of the tile, so all four share one rstd that is about half of the right one; it should be `tl.sum(acc, axis=1, keep_dims=True)`. Only a tile with a single row is right.
"""RMSNorm on tiles of four rows."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE_ROWS = 4
TILE_COLS = 4096  # at most


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; a program computes ROWS rows, BLOCK columns at a time.

    The weight is loaded once for all rows of the tile.
    """
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_tile = x_ptr + rows.to(tl.int64) * stride_x + lanes
    y_tile = y_ptr + rows.to(tl.int64) * stride_y + lanes

    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_tile + start, mask=inside, other=0.0).to(tl.float32)
        acc += x * x
    # one reduction, behind the loop
    rstd = tl.rsqrt(tl.sum(acc) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_tile + start, mask=inside, other=0.0).to(tl.float32)
        w = load(weight_ptr, start + lanes, N_COLS)
        y = x * rstd * w
        tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        n_rows,
        eps,
        N_COLS=n_cols,
        ROWS=TILE_ROWS,
        BLOCK=min(block_of(n_cols), TILE_COLS),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
