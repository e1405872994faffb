# labs/lab4_production_slice/rms_norm.py | error | rms_norm_kernel, second loop: `x * rstd` multiplies a tile (ROWS, BLOCK) by rstd of shape (ROWS,), which is aligned with the columns and not with the rows: the shapes do not fit and the kernel does not compile (nor run in the interpreter) for nearly every width; only where BLOCK is 2 as well (2 columns) it compiles, and multiplies by the rstd of other rows; it should be `x * rstd[:, None]`
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

ROWS = 2  # of a program


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
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes tiles of ROWS by BLOCK.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_exists = (rows < n_rows)[:, None]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = row_exists & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = row_exists & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
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
    grid = (triton.cdiv(n_rows, ROWS),)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        n_rows,
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
        ROWS=ROWS,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
