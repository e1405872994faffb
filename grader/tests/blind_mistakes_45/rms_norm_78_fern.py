# labs/lab4_production_slice/rms_norm.py | error | `return min(triton.cdiv(n_cols, LANES) * LANES, WIDEST)` in `width_of` gives a multiple of 128 that need not be a power of two, as `tl.arange(0, WIDTH)` in `rms_norm_kernel` demands; it should be block_of(n_cols). Compile error (ValueError in the interpreter) for 257, 1030, 1536 or 3001 columns; right for 127, 129, 1001, 4096, 16385.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, load, on, store
from torch.library import triton_op

LANES = 128  # a warp of 32 threads with four elements each


def width_of(n_cols):
    """Return the columns of a block: whole groups of lanes, as few as cover the row, at most WIDEST."""
    return min(triton.cdiv(n_cols, LANES) * LANES, WIDEST)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, WIDTH: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes WIDTH columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    squares = 0.0
    for start in range(0, N_COLS, WIDTH):
        x = load(x_row, start + tl.arange(0, WIDTH), N_COLS)
        squares += tl.sum(x * x, axis=0)
    mean_square = squares / N_COLS + tl.cast(eps, tl.float32)
    rstd = 1.0 / tl.sqrt_rn(mean_square)
    for start in range(0, N_COLS, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        scale = load(weight_ptr, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * scale)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, WIDTH=width_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
