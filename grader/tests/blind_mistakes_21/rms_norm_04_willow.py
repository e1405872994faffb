# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 8192  # elements of a tile: many short rows, or a piece of a long one
TALLEST = 32


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
    HEIGHT: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has HEIGHT rows, and goes over them BLOCK columns at a time.

    Squares are added element by element in a tile, which is reduced once, behind the loop.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows

    tile = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        x = tl.load(x_ptr + rows * stride_x + cols, mask=exists & (cols < N_COLS), other=0.0).to(tl.float32)
        tile += x * x
    mean_square = tl.sum(tile, axis=1)[:, None] / N_COLS
    # rows that do not exist get a 1, so that nothing is divided by 0 with eps = 0
    mean_square = tl.where(exists, mean_square, 1.0)
    root = tl.sqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        inside = exists & (cols < N_COLS)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        y = x / root * w
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), TILE)
    height = min(TILE // block, TALLEST)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, height),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, HEIGHT=height
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
