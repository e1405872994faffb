# labs/lab4_production_slice/layer_norm.py | contract | In layer_norm_forward, without `out` the result is allocated by `torch.empty_strided(x.shape, x.stride(), ...)`, so for rows with gaps it is not contiguous; it should be a new contiguous tensor, `torch.empty(x.shape, ...)`.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def centred(x_row, cols, mean, N_COLS: tl.constexpr):
    """x - mean, and 0 where the row has no such column."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lanes = tl.arange(0, BLOCK)

    sum_x = tl.zeros((BLOCK,), dtype=tl.float32)
    start = 0
    while start < N_COLS:
        sum_x += load(x_row, start + lanes, N_COLS)
        start += BLOCK
    mean = tl.sum(sum_x, axis=0) / N_COLS

    sum_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    start = 0
    while start < N_COLS:
        d = centred(x_row, start + lanes, mean, N_COLS)
        sum_dd += d * d
        start += BLOCK
    variance = tl.sum(sum_dd, axis=0) / N_COLS

    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row per program."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    lanes = tl.arange(0, BLOCK)
    start = 0
    while start < N_COLS:
        cols = start + lanes
        n = centred(x_row, cols, mean, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))
        start += BLOCK


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart.
    """
    if out is None:
        # the result lies in memory like x
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    options = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(layer_norm_kernel, x)[(n_rows,)](x, weight, bias, out, x.stride(0), out.stride(0), eps, **options)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
