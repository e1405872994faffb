# labs/lab4_production_slice/rms_norm.py | error | rms_norm_kernel, second loop: `x * rstd * weight[None, :]` multiplies a tile (ROWS, BLOCK) = (4, 16 or more) by rstd of shape (4,); the shapes do not broadcast (dimension 1 is BLOCK against 4), so the kernel fails to compile, and fails in the interpreter, in every case; it should be rstd[:, None].
"""RMSNorm, four rows to a program, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ROWS = tl.constexpr(4)  # of a program
NARROW, WIDE = 16, 4096  # limits for the columns of a tile


def width_of(n_cols):
    """Return the columns of a tile: a power of two between NARROW and WIDE."""
    return max(NARROW, min(block_of(n_cols), WIDE))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes the rows from ROWS * i on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists & (cols < N_COLS)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    mean_square = tl.sum(squares, axis=1) / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists & (cols < N_COLS)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        weight = load(weight_ptr, cols, N_COLS)
        y = x * rstd * weight[None, :]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs = triton.cdiv(n_rows, ROWS)
    on(rms_norm_kernel, x)[(programs,)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=width_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
