# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) `write` places rows of y by the stride of x: it must be the stride of out; shows where x and out have different row strides (one of them padded). (2) `mean_and_rstd` has rsqrt(max(variance, eps)): it must be rsqrt(variance + eps); shows with eps = 1 or small variances, and in fp32 also with the default eps
"""LayerNorm, four rows for each program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

ROWS_EACH = tl.constexpr(4)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and inverse deviation of a row; eps is the floor of the variance, so nothing is divided by 0."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for c0 in range(0, N_COLS, BLOCK):
        total += load(x_row, c0 + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for c0 in range(0, N_COLS, BLOCK):
        cols = c0 + tl.arange(0, BLOCK)
        diff = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += diff * diff
    variance = tl.sum(squares, axis=0) / N_COLS
    return mean, tl.rsqrt(tl.maximum(variance, tl.cast(eps, tl.float32)))


@triton.jit
def write(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    for c0 in range(0, N_COLS, BLOCK):
        cols = c0 + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def four_rows(
    x_ptr, weight_ptr, bias_ptr, y_ptr, n_rows, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0).to(tl.int64) * ROWS_EACH
    for k in range(0, ROWS_EACH):
        row = first + k
        if row < n_rows:
            x_row = x_ptr + row * stride
            mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
            write(x_row, weight_ptr, bias_ptr, y_ptr + row * stride, mean, rstd, N_COLS, BLOCK)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs = triton.cdiv(n_rows, ROWS_EACH)
    on(four_rows, x)[(programs,)](
        x, weight, bias, out, n_rows, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
