# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm. The row is a tile of two axes, and the second sweep runs from its end to its start."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def tile_of_columns(LINES: tl.constexpr, WIDTH: tl.constexpr):
    """The numbers 0 to LINES * WIDTH - 1, line by line."""
    return tl.arange(0, LINES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    y_ptr,
    x_ptr,
    weight_ptr,
    stride_y,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCKS: tl.constexpr,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Row i of y by program i: BLOCKS tiles of LINES by WIDTH columns.

    The last tile of the first sweep is the first one of the second, so it comes from the cache.
    """
    i = tl.program_id(axis=0).to(tl.int64)
    x_ptr += i * stride_x
    y_ptr += i * stride_y
    tile = tile_of_columns(LINES, WIDTH)

    squares = tl.zeros((LINES, WIDTH), dtype=tl.float32)
    for block in range(BLOCKS):
        x = load(x_ptr, block * (LINES * WIDTH) + tile, N_COLS)
        squares += x * x
    mean_square = tl.sum(tl.sum(squares, axis=1), axis=0) / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    for turn in range(BLOCKS):
        cols = (BLOCKS - 1 - turn) * (LINES * WIDTH) + tile
        x = load(x_ptr, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        store(y_ptr, cols, N_COLS, (x * rstd) * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, written to `out` if there is one."""
    n_rows, n_cols = x.shape
    y = x.new_empty((n_rows, n_cols)) if out is None else out
    block = block_of(n_cols)
    width = min(block, 256)
    on(rms_norm_kernel, x)[(n_rows,)](
        y,
        x,
        weight,
        y.stride(0),
        x.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCKS=triton.cdiv(n_cols, block),
        LINES=block // width,
        WIDTH=width,
    )
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
