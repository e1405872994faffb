# labs/lab4_production_slice/rms_norm.py | two mistakes | In rms_norm_kernel the mean divides by the width of the block, `squares / BLOCK`; it should be `squares / N_COLS`. In rms_norm_forward the launch passes the constant `1e-6`; it should pass the argument `eps`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,  # (n_rows, N_COLS), columns contiguous
    weight_ptr,  # (N_COLS,)
    y_ptr,  # like x
    stride_x,  # elements between the starts of two rows of x
    stride_y,  # the same for y
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    # Which row is mine? int64, because row * stride may not fit 32 bits.
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    # Step 1: sum of squares. `load` returns fp32 and 0 past the end, which adds nothing.
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x_block = load(x_row, cols, N_COLS)
        squares += tl.sum(x_block * x_block, axis=0)

    # Step 2: reciprocal of the root mean square.
    mean_square = squares / BLOCK
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    # Step 3: load the row again (for one block the compiler keeps it in registers), scale it, store it.
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x_block = load(x_row, cols, N_COLS)
        weight_block = load(weight_ptr, cols, N_COLS)
        y_block = x_block * rstd * weight_block
        store(y_row, cols, N_COLS, y_block)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    # One program for each row; the number of warps comes from the autotuner.
    grid = (n_rows,)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        1e-6,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
