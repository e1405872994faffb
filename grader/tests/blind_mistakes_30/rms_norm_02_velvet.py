# labs/lab4_production_slice/rms_norm.py | error | rms_norm_kernel multiplies the tile x, (ROWS, BLOCK), by rstd, (ROWS,), in `x * rstd * weight`: shapes that do not fit, so for rows of up to 2048 columns (ROWS of 2 to 16) the kernel neither runs in the interpreter nor compiles (for 9 to 16 columns the tile is 16 x 16, and each column gets the rstd of another row). It should be rstd[:, None], or tl.sum with keep_dims=True. Wider rows, where ROWS is 1, are right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE = 4096  # elements that a program has at a time where rows are short
MOST_ROWS = 16


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    A tile has ROWS rows and BLOCK columns, so that programs of short rows have enough to do.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        weight = load(weight_ptr, cols, N_COLS)
        y = x * rstd * weight
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    rows = max(1, min(MOST_ROWS, TILE // block))
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=rows, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
