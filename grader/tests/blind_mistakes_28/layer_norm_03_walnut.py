# labs/lab4_production_slice/layer_norm.py | corner | layer_norm_kernel: the row of `for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0))` is int32, so `row * stride_x` and `row * stride_y` wrap where the offset of a row passes 2^31 - 1 (more than 2^31 elements, or rows very far apart, with a stride below 2^31): such rows are read or written at negative offsets; all smaller matrices are right; the row should be made int64 before it is multiplied by a stride
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2048  # at most; each takes every 2048th row


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    offs = tl.arange(0, BLOCK)
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + offs, N_COLS), axis=0)
    mean = mean / N_COLS
    variance = 0.0
    for start in range(0, N_COLS, BLOCK):
        off_centre = load(x_row, start + offs, N_COLS) - mean
        off_centre = tl.where(start + offs < N_COLS, off_centre, 0.0)
        variance += tl.sum(off_centre * off_centre, axis=0)
    variance = variance / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    stride_x,
    stride_y,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; a program takes row after row.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + offs
            weight = load(weight_ptr, cols, N_COLS)
            bias = load(bias_ptr, cols, N_COLS)
            normalised = (load(x_row, cols, N_COLS) - mean) * rstd
            store(y_row, cols, N_COLS, normalised * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(min(n_rows, PROGRAMS),)]
    launch(
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
