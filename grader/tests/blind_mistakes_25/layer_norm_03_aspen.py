# labs/lab4_production_slice/layer_norm.py | contract | layer_norm_forward, `x.new_empty_strided(x.size(), x.stride())`: without `out` the new result has the row stride of x, so it is not contiguous where the rows of x are padded (values are right). It should be a new contiguous tensor, as `torch.empty_like(x)` or `x.new_empty(x.shape)` gives.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def keep(row_ptr, cols, n_cols):
    """As load, for numbers that the program needs again soon."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The differences from the first mean do not quite sum to 0: their sum says by how much that mean was rounded, and
    corrects both mean and variance.
    """
    lanes = tl.arange(0, BLOCK)

    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(keep(x_row, start + lanes, N_COLS), axis=0)
    mean = total / N_COLS

    drift = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, keep(x_row, cols, N_COLS) - mean, 0.0)
        drift += tl.sum(d, axis=0)
        squares += tl.sum(d * d, axis=0)
    off = drift / N_COLS
    variance = tl.maximum(squares / N_COLS - off * off, 0.0)

    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean + off, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        scale = load(weight_ptr, cols, N_COLS)
        shift = load(bias_ptr, cols, N_COLS)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * scale + shift)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    if out is None:
        out = x.new_empty_strided(x.size(), x.stride())
    n_rows, n_cols = x.size()
    on(layer_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        bias,
        out,
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
