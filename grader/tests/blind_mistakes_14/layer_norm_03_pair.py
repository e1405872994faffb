# labs/lab4_production_slice/layer_norm.py | corner | In layer_norm_forward, `mean, rstd = x.new_empty((2, n_rows))` has the dtype of x, so for fp16 and bf16 mean and rstd are rounded to 16 bits between the two kernels, which loses the digits of rows far from 0; it should be `x.new_empty((2, n_rows), dtype=torch.float32)`.
"""LayerNorm in two kernels: the statistics of each row, then the rows themselves."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

TILE = 1024  # columns that a program of the second kernel normalises


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        diff = load(x_row, cols, N_COLS) - mean
        squares += tl.where(cols < N_COLS, diff * diff, 0.0)
    variance = tl.sum(squares, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_stats_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of row i, by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean.to(mean_ptr.dtype.element_ty))
    tl.store(rstd_ptr + row, rstd.to(rstd_ptr.dtype.element_ty))


@triton.jit
def apply_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr
):
    """Program (i, j) has BLOCK columns of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    mean = tl.load(mean_ptr + row).to(tl.float32)
    rstd = tl.load(rstd_ptr + row).to(tl.float32)
    x = load(x_ptr + row * stride_x, cols, n_cols)
    w = load(weight_ptr, cols, n_cols)
    b = load(bias_ptr, cols, n_cols)
    store(y_ptr + row * stride_y, cols, n_cols, (x - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    mean, rstd = x.new_empty((2, n_rows))
    on(row_stats_kernel, x)[(n_rows,)](x, mean, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    block = min(TILE, triton.next_power_of_2(n_cols))
    grid = (n_rows, triton.cdiv(n_cols, block))
    on(apply_kernel, x)[grid](
        x, weight, bias, out, mean, rstd, x.stride(0), out.stride(0), n_cols, BLOCK=block, num_warps=4
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
