# labs/lab4_production_slice/rms_norm.py | contract | fetch: `tl.load(start_ptr + cols)` has no mask, and lanes past the end of the row are set to 0 only afterwards by tl.where: the values of y are right, but the space between rows, the memory behind the last row of x and behind the weight are read (the README: the space between rows is neither read nor written; no access out of bounds); in all rows whose length is no multiple of the block (no power of two up to 16384); it should be `tl.load(start_ptr + cols, mask=cols < N_COLS, other=0.0)`
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on, store
from torch.library import triton_op


@triton.jit
def fetch(start_ptr, cols, N_COLS: tl.constexpr):
    """Columns `cols` of what begins at start_ptr as fp32, with 0 in the lanes that have no column."""
    values = tl.load(start_ptr + cols).to(tl.float32)
    return tl.where(cols < N_COLS, values, 0.0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = fetch(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    mean_square = tl.sum(squares, axis=0) / N_COLS
    rms = tl.sqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = fetch(x_row, cols, N_COLS) / rms * fetch(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    width = x.shape[1]
    kernel = on(rms_norm_kernel, x)
    kernel[(x.shape[0],)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=width, BLOCK=block_of(width)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
