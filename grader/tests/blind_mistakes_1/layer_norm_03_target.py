# lab4_production_slice/layer_norm.py | contract | layer_norm_forward writes to `target = out.contiguous()` and returns it: for an `out` with space between its rows that is another tensor, so out itself stays unwritten (the returned numbers are right) | "`out` need not be contiguous. A copy made by `out.contiguous()` is another tensor: write through the strides of `out`" / "rows of both may be any number of elements apart"; shows only where out is given with a row stride other than n_cols (and more than one row)
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_PROGRAMS = 4096


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    mean = 0.0
    for first in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, first + tl.arange(0, BLOCK), N_COLS), axis=0) / N_COLS
    variance = 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        # lanes past the end read the mean, so their difference is 0
        diff = load(x_row, cols, N_COLS, mean) - mean
        diff = tl.where(cols < N_COLS, diff, 0.0)
        variance += tl.sum(diff * diff, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
    """Program i computes rows i, i + programs, i + 2 * programs, ..."""
    for r in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        r64 = tl.cast(r, tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + r64 * stride_x, eps, N_COLS, BLOCK)
        for first in range(0, N_COLS, BLOCK):
            cols = first + tl.arange(0, BLOCK)
            v = load(x_ptr + r64 * stride_x, cols, N_COLS)
            v = (v - mean) * rstd
            v = v * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
            store(y_ptr + r64 * stride_y, cols, N_COLS, v)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    target = torch.empty_like(x) if out is None else out.contiguous()
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(min(n_rows, MAX_PROGRAMS),)](
        x,
        weight,
        bias,
        target,
        n_rows,
        x.stride(0),
        target.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return target


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
