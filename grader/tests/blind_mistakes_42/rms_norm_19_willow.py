# labs/lab4_production_slice/rms_norm.py | error | In `rms_norm_forward`, `height = max(1, NUMBERS // n_cols)` becomes the constexpr ROWS of `tl.arange(0, ROWS)` in `rms_norm_kernel`, and need not be a power of two; it should be, as `NUMBERS // min(block_of(n_cols), NUMBERS)` is. COMPILE_ERROR (arange's range must be a power of 2) for 3 columns (1365 rows), 48 (85), 129 (31), 130 (31), 257 (15), 1030 (3) and others; right for 1, 2, 127, 1001, 1009, 1536 and all rows of more than 2048 columns.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

NUMBERS = 4096  # of x in the tile of a program: several short rows, or a part of a long one


@triton.jit
def tile_of(x_rows, exists, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return columns of a block of each row in fp32, 0 outside, and which of them there are."""
    cols = start + tl.arange(0, BLOCK)[None, :]
    inside = exists & (cols < N_COLS)
    return tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32), cols, inside


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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    exists = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, cols, inside = tile_of(x_rows, exists, start, N_COLS, BLOCK)
        squares += x * x
    power = tl.sum(squares, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        x, cols, inside = tile_of(x_rows, exists, start, N_COLS, BLOCK)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    height = max(1, NUMBERS // n_cols)
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, height),)]
    launch(
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        ROWS=height,
        BLOCK=min(block_of(n_cols), NUMBERS),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
