# labs/lab4_production_slice/layer_norm.py | right | right
"""LayerNorm over rows of any length, and the same as an operator.

A row is cut into whole blocks, which need no mask, and what is left of it, which does. A limited number of
programs walks over the rows.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # at most; each takes every PROGRAMS-th row


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    WHOLE: tl.constexpr = N_COLS // BLOCK * BLOCK
    lanes = tl.arange(0, BLOCK)
    rest = WHOLE + lanes

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, WHOLE, BLOCK):
        total += tl.load(x_row + start + lanes).to(tl.float32)
    if WHOLE < N_COLS:
        total += load(x_row, rest, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    power = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, WHOLE, BLOCK):
        away = tl.load(x_row + start + lanes).to(tl.float32) - mean
        power += away * away
    if WHOLE < N_COLS:
        beyond = tl.where(rest < N_COLS, load(x_row, rest, N_COLS) - mean, 0.0)
        power += beyond * beyond
    variance = tl.sum(power, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def affine(x, mean, rstd, weight, bias):
    """Return x normalised, scaled and shifted, in fp32."""
    return (x - mean) * rstd * weight.to(tl.float32) + bias.to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i has row i, i + programs, and so on.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    WHOLE: tl.constexpr = N_COLS // BLOCK * BLOCK
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        wide_row = tl.cast(row, tl.int64)
        x_row = x_ptr + wide_row * stride_x
        y_row = y_ptr + wide_row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, WHOLE, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols).to(tl.float32)
            y = affine(x, mean, rstd, tl.load(weight_ptr + cols), tl.load(bias_ptr + cols))
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty))
        if WHOLE < N_COLS:
            rest = WHOLE + lanes
            last = affine(
                load(x_row, rest, N_COLS),
                mean,
                rstd,
                load(weight_ptr, rest, N_COLS),
                load(bias_ptr, rest, N_COLS),
            )
            store(y_row, rest, N_COLS, last)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    on(layer_norm_kernel, x)[grid](
        x,
        weight,
        bias,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
