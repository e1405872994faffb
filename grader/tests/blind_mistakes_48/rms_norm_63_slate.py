# labs/lab4_production_slice/rms_norm.py | corner | In `squares_kernel` the sums are stored at `squares_ptr + row * tl.num_programs(axis=1) + part`, but the buffer has rows of `width = triton.next_power_of_2(parts)` numbers, and `part_of_row_kernel` reads them at `row * PARTS` with PARTS = width. The store should use this width as well. Wrong for rows of more than 16384 columns whose number of parts of 8192 columns is no power of two (16385 has 3, 40000 has 5) where there is more than one row; all else is right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

PART = 8192  # columns of a program where a row does not fit one block


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def whole_row_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight for a row of one block; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS)
    power = tl.sum(x * x, axis=0) / N_COLS
    n = x * tl.rsqrt(power + tl.cast(eps, tl.float32))
    store(y_ptr + row * stride_y, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


@triton.jit
def squares_kernel(x_ptr, squares_ptr, n_cols, stride_x, WIDTH: tl.constexpr):
    """Store the sum of the squares of part j of row i; program (i, j) has these WIDTH columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x = load(x_ptr + row * stride_x, part * WIDTH + tl.arange(0, WIDTH), n_cols)
    tl.store(squares_ptr + row * tl.num_programs(axis=1) + part, tl.sum(x * x, axis=0))


@triton.jit
def part_of_row_kernel(
    x_ptr,
    weight_ptr,
    squares_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    eps,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add up the squares of row i, which are PARTS numbers, and normalise part j of it; program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    squares = tl.load(squares_ptr + row * PARTS + tl.arange(0, PARTS))
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + tl.cast(eps, tl.float32))
    cols = tl.program_id(axis=1) * WIDTH + tl.arange(0, WIDTH)
    x = load(x_ptr + row * stride_x, cols, n_cols)
    store(y_ptr + row * stride_y, cols, n_cols, x * rstd * load(weight_ptr, cols, n_cols))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols).

    A row of up to WIDEST columns stays in the registers of its program. The squares of a longer one are added
    up by several programs, which leave a number each, and a second launch normalises the parts.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    if n_cols <= WIDEST:
        on(whole_row_kernel, x)[(n_rows,)](
            x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
        )
        return out
    parts = triton.cdiv(n_cols, PART)
    # A block has a power of two of numbers; those without a part of the row stay 0.
    width = triton.next_power_of_2(parts)
    squares = torch.zeros((n_rows, width), device=x.device, dtype=torch.float32)
    grid = (n_rows, parts)
    on(squares_kernel, x)[grid](x, squares, n_cols, x.stride(0), WIDTH=PART, num_warps=8)
    on(part_of_row_kernel, x)[grid](
        x, weight, squares, out, n_cols, x.stride(0), out.stride(0), eps, WIDTH=PART, PARTS=width, num_warps=8
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
