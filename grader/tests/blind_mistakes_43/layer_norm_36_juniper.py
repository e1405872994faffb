# labs/lab4_production_slice/layer_norm.py | error | In `layer_norm_forward` `warps = min(triton.cdiv(n_cols, COLUMNS_OF_A_WARP), 16)` is handed on as `num_warps`, which has to be a power of two; it should be computed from `block_of(n_cols)`. The launch fails to compile for 1025 to 1536, 2049 to 3584 and 4097 to 7680 columns (1030, 1536, 2600, 3001); other widths are right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

COLUMNS_OF_A_WARP = 512


@triton.jit
def deviation(x, mean, cols, n_cols):
    """x - mean, and 0 past the end of the row."""
    return tl.where(cols < n_cols, x - mean, 0.0)


@triton.jit
def rstd_of(variance, eps):
    """1 / sqrt(variance + eps) in fp32; torch.compile passes eps as fp64."""
    return tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = deviation(load(x_row, cols, N_COLS), mean, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
    return mean, rstd_of(squares / N_COLS, eps)


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A row of one block is loaded once.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, cols, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = deviation(x, mean, cols, N_COLS)
        n = d * rstd_of(tl.sum(d * d, axis=0) / N_COLS, eps)
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)
    else:
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            n = (load(x_row, start + cols, N_COLS) - mean) * rstd
            y = n * load(weight_ptr, start + cols, N_COLS) + load(bias_ptr, start + cols, N_COLS)
            store(y_row, start + cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    warps = min(triton.cdiv(n_cols, COLUMNS_OF_A_WARP), 16)
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(
        x, weight, bias, out, x.stride(0), out.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols), num_warps=warps,
    )  # fmt: skip
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
