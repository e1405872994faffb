# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_root(sum_of_squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean + eps) from the sum of N_COLS squares."""
    return 1.0 / tl.sqrt(sum_of_squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def scaled(x_row, weight_ptr, y_row, cols, factor, N_COLS: tl.constexpr):
    """Store one block of the result."""
    normal = load(x_row, cols, N_COLS) * factor
    store(y_row, cols, N_COLS, normal * load(weight_ptr, cols, N_COLS))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    A row that fits one block is held in registers. A longer one is walked through twice: backwards for its
    sum, so that the blocks at its front are the ones most recently read when the second walk begins there.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lane, N_COLS)
        factor = inverse_root(tl.sum(x * x, axis=0), eps, N_COLS)
        store(y_row, lane, N_COLS, x * factor * load(weight_ptr, lane, N_COLS))
    else:
        blocks: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        for turn in range(0, blocks):
            x = load(x_row, (blocks - 1 - turn) * BLOCK + lane, N_COLS)
            squares += x * x
        factor = inverse_root(tl.sum(squares, axis=0), eps, N_COLS)
        for turn in range(0, blocks):
            scaled(x_row, weight_ptr, y_row, turn * BLOCK + lane, factor, N_COLS)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    y = out if out is not None else torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
