# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In mean_and_rstd the block pointer `x_block` stands behind the end of the row after the loop of the mean and is not rewound, so the loop of the variance loads padding zeros only; before it x_block should have been made anew (or advanced back to column 0).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def row_block(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """A block pointer to the first BLOCK columns of a row."""
    return tl.make_block_ptr(
        base=row_ptr, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    x_block = row_block(x_row, N_COLS, BLOCK)

    # TODO 1
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x_block = tl.advance(x_block, (BLOCK,))
    mean = tl.sum(sums, axis=0) / N_COLS

    # TODO 2, the lanes past the end of the row must not add mean * mean
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        diff = tl.where(start + lanes < N_COLS, x - mean, 0.0)
        squares += diff * diff
        x_block = tl.advance(x_block, (BLOCK,))
    variance = tl.sum(squares, axis=0) / N_COLS

    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    # TODO 3
    x_block = row_block(x_row, N_COLS, BLOCK)
    y_block = row_block(y_row, N_COLS, BLOCK)
    weight_block = row_block(weight_ptr, N_COLS, BLOCK)
    bias_block = row_block(bias_ptr, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        weight = tl.load(weight_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        bias = tl.load(bias_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = (x - mean) * rstd * weight + bias
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        weight_block = tl.advance(weight_block, (BLOCK,))
        bias_block = tl.advance(bias_block, (BLOCK,))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # TODO 4
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
