# labs/lab4_production_slice/layer_norm.py | wrong everywhere | layer_norm_kernel: `x_row += stride_x` at the end of the loop over rows moves one row on, while the rows of a program lie num_programs apart (as y_row does); it should be `x_row += step * stride_x`. The second row of each program gets the norm of another row of x, so all matrices of 3 or more rows are wrong in their second half.
"""LayerNorm over rows of any length, two rows for each program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

ROWS_EACH = 2  # rows of a program


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of one row in fp32; each lane adds up on its own first."""
    lanes = tl.arange(0, BLOCK)

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        diff = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += diff * diff
    variance = tl.sum(squares, axis=0) / N_COLS

    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, n_rows, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows are dealt out like cards: program i has rows i, i + programs, and so on."""
    first = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    step = programs.to(tl.int64)
    x_row = x_ptr + first.to(tl.int64) * stride_x
    y_row = y_ptr + first.to(tl.int64) * stride_y
    for _ in range(first, n_rows, programs):
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
            store(y_row, cols, N_COLS, y)
        x_row += stride_x
        y_row += step * stride_y


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS_EACH),)
    on(layer_norm_kernel, x)[grid](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        n_rows,
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
