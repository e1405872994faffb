# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel` the line `squares += tl.sum((x * x).to(tl.float32), axis=1)` squares x in its own dtype and converts afterwards; x should be converted to fp32 when it is loaded. For fp16 with any |x| of 256 or more the square is inf, rstd is 0 and the whole row becomes 0 (values "large" and "farther"); fp32 is right, and fp16 and bf16 with ordinary values are within tolerance.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

ELEMENTS = 8192  # of a tile at most
MOST_ROWS = 16


def tile_of(n_cols: int):
    """Return rows and columns of a tile: several rows where they are short, a part of one where it is long."""
    cols = min(block_of(n_cols), ELEMENTS)
    return max(1, min(MOST_ROWS, ELEMENTS // 2 // cols)), cols


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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=(rows < n_rows) & (cols < N_COLS), other=0.0)
        squares += tl.sum((x * x).to(tl.float32), axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))[:, None]

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_rows + cols, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_cols)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, weight, out, x.stride(0), out.stride(0), n_rows, eps, N_COLS=n_cols, ROWS=rows, BLOCK=cols
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
