"""EXPECT PASS from rms_norm_forward: one kernel, with tiles of rows or rows in blocks."""

from typing import Final, Optional, Tuple

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

ELEMENTS: Final[int] = 4096  # of a tile of short rows


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    rows = rows[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + start + lanes, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    mean_square = tl.sum(squares, axis=1, keep_dims=True) / N_COLS
    # Rows that do not exist would give 1 / sqrt(0) where eps is 0; nothing of them is stored.
    rstd = tl.where(rows < n_rows, 1.0 / tl.sqrt(mean_square + tl.cast(eps, tl.float32)), 0.0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = (x * rstd * weight).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + rows * stride_y + cols, y, mask=inside)


def _tile(n_cols: int) -> Tuple[int, int]:
    """ROWS and BLOCK."""
    block = block_of(n_cols)
    return (ELEMENTS // block if block < ELEMENTS else 1), block


def rms_norm_forward(
    x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if x.ndim != 2:
        raise ValueError(f"rms_norm_forward: x has {x.ndim} dimensions, 2 expected")
    if weight.ndim != 1 or weight.shape[0] != x.shape[1]:
        raise ValueError(f"rms_norm_forward: weight {tuple(weight.shape)} for x {tuple(x.shape)}")
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, block = _tile(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    on(rms_norm_kernel, x)[grid](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=rows, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator."""
    return rms_norm_forward(x, weight, eps=eps)
