# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length, several short rows for each program, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 4096  # elements of a tile of short rows
TALLEST = 16  # rows of a tile


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i has the rows from i * ROWS on, in tiles of ROWS x BLOCK."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    mean_square = tl.sum(squares, axis=1)[:, None] / N_COLS
    mean_square = tl.where(rows < n_rows, mean_square, 1.0)
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    tall = min(TALLEST, max(1, TILE // block))
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, tall),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=tall, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
