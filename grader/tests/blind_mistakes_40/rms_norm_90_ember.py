# labs/lab4_production_slice/rms_norm.py | right | Rows of more than one block are split over programs: one launch stores the sum of squares of each block, a second one adds them up in each program and scales its block; a one-dimensional grid numbers the blocks of all rows. Rows of one block have a kernel without loops.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def short_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """A row that fits one block: it is read once. Program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    store(y_ptr + row * stride_y, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


@triton.jit
def place(program, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Row, as int64, and number of the block in it, of a program of the two kernels for long rows."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    return (program // BLOCKS).to(tl.int64), program % BLOCKS


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def square_kernel(x_ptr, squares_ptr, stride_x, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Program p stores the sum of the squares of its block of x to squares[p], fp32.

    The blocks of a row follow one another, then come those of the next row.
    """
    program = tl.program_id(axis=0)
    row, block = place(program, N_COLS, BLOCK)
    x = load(x_ptr + row * stride_x, block * BLOCK + tl.arange(0, BLOCK), N_COLS)
    tl.store(squares_ptr + program, tl.sum(x * x, axis=0))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    x_ptr, weight_ptr, squares_ptr, y_ptr, stride_x, stride_y, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Program p adds up the squares of its row, each program for itself, and scales its block of the row.

    SLOTS is a power of two, at least the number of blocks. All programs of a row add the same numbers in the
    same order, so they agree on rstd to the last bit.
    """
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row, block = place(tl.program_id(axis=0), N_COLS, BLOCK)
    squares = tl.sum(load(squares_ptr + row * BLOCKS, tl.arange(0, SLOTS), BLOCKS), axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    cols = block * BLOCK + tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS)
    store(y_ptr + row * stride_y, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. Rows
    of more than one block are dealt out to as many programs as they have blocks, in two launches.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width = block_of(n_cols)
    blocks = triton.cdiv(n_cols, width)
    if blocks == 1:
        on(short_kernel, x)[(n_rows,)](
            x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=width
        )
        return out
    squares = torch.empty((n_rows, blocks), device=x.device, dtype=torch.float32)
    grid = (n_rows * blocks,)
    on(square_kernel, x)[grid](x, squares, x.stride(0), N_COLS=n_cols, BLOCK=width)
    on(scale_kernel, x)[grid](
        x, weight, squares, out, x.stride(0), out.stride(0), eps,
        N_COLS=n_cols, BLOCK=width, SLOTS=triton.next_power_of_2(blocks),
    )  # fmt: skip
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
