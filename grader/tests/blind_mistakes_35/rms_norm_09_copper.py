# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel, first loop: squares += x * x with x as it was loaded, so the product is taken in the dtype of x and only the sum is fp32; shows in fp16 only, where a row has |x| of 256 or more: the square is inf, rstd is 0 and the whole row of y is 0 (also where squares below 6e-8 vanish and eps is 0 or tiny); fp32 is right, bf16 is within its rounding; should convert first: x = tl.load(...).to(tl.float32)
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time: from left to
    right for the sum, and back from right to left, where the cache still has the blocks read last.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = tl.load(x_row + start + lanes, mask=start + lanes < N_COLS, other=0.0)
        squares += x * x
    power = tl.sum(squares, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))

    last = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = last - back + lanes
        y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    sizes = {"N_COLS": cols, "BLOCK": block_of(cols)}
    on(rms_norm_kernel, x)[(rows,)](x, weight, out, x.stride(0), out.stride(0), eps, **sizes)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
