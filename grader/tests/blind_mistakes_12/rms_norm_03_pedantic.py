# labs/lab4_production_slice/rms_norm.py | corner | x * x is computed in the dtype of x and only the sum is fp32, x must be converted before it is squared: in fp16 values above 255 give inf (y = 0) and values below about 1e-4 lose their squares; fp32 and ordinary fp16 values are right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    tl.static_assert(BLOCK > 0, "BLOCK is a power of two")
    # The row number is int64: row * stride_x may exceed 2^31.
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    # Sweep 1. BLOCK sums side by side, in fp32; masked lanes load 0 and add nothing.
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0)
        squares += x * x

    # One reduction for each row.
    mean_of_squares = tl.sum(squares, axis=0) / N_COLS
    # eps is inside the root. Under torch.compile it would be fp64.
    rstd = 1.0 / tl.sqrt(mean_of_squares + tl.cast(eps, tl.float32))

    # Sweep 2. The store rounds to the dtype of y once.
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    assert x.dim() == 2, f"expected a matrix, got {x.dim()} axes"
    assert weight.numel() == x.size(1), "one weight for each column"
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.size(0), x.size(1)
    grid = (n_rows,)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
