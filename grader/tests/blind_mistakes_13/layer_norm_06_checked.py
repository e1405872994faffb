# labs/lab4_production_slice/layer_norm.py | contract | Without `out` the function allocates with `torch.empty_strided(x.shape, x.stride(), ...)`, so the result has the gaps between rows of x; it should have been a new contiguous tensor, as from `torch.empty(x.shape, ...)`.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    total = 0.0
    first = 0
    while first < N_COLS:
        total += tl.sum(load(x_row, first + tl.arange(0, BLOCK), N_COLS), axis=0)
        first += BLOCK
    mean = total / N_COLS

    squared = 0.0
    first = 0
    while first < N_COLS:
        cols = first + tl.arange(0, BLOCK)
        delta = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squared += tl.sum(delta * delta, axis=0)
        first += BLOCK
    variance = squared / N_COLS
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
    first = 0
    while first < N_COLS:
        cols = first + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, tl.fma((x - mean) * rstd, weight, bias))
        first += BLOCK


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    if x.ndim != 2:
        raise ValueError(f"expected a matrix, got {x.ndim} dimensions")
    n_rows, n_cols = x.shape
    if weight.numel() != n_cols or bias.numel() != n_cols:
        raise ValueError(f"weight and bias need {n_cols} elements")
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    assert out.size(0) == n_rows and out.size(1) == n_cols, f"out needs {n_rows} x {n_cols} elements"

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
