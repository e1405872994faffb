# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) In `rms_norm_kernel`, `squares += x * x` multiplies in the dtype of x before the sum in fp32 (x is not converted by `.to(tl.float32)`): in fp16 values of 256 and more give inf, and the row of y is 0. (2) `rstd = tl.rsqrt(tl.maximum(power, tl.cast(eps, tl.float32)))` takes the larger of mean square and eps instead of their sum `power + eps`: wrong where eps is not negligible against the mean square (eps=1.0, narrow rows of about 0.002, and single very short fp32 rows near 0); eps=0 is right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 4096  # elements of a tile at most


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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes a tile of ROWS x BLOCK at a time.
    """
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=(rows < n_rows) & (cols < N_COLS), other=0.0)
        squares += x * x
    power = tl.sum(squares, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(tl.maximum(power, tl.cast(eps, tl.float32)))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        n = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32) * rstd
        tl.store(y_rows + cols, (n * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(max(block_of(n_cols), 16), TILE)
    rows = min(TILE // block, 16)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        ROWS=rows,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
