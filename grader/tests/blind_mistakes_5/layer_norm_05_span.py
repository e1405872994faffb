# labs/lab4_production_slice/layer_norm.py | honest | Right; small helpers of its own for columns and loads, lanes added up and reduced once, the mask as a factor, rstd * weight first.
"""LayerNorm: lanes first, one reduction per statistic at the end; row handling in small jit helpers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def span(start, SIZE: tl.constexpr):
    return start + tl.arange(0, SIZE)


@triton.jit
def read(ptr, idx, limit):
    return tl.load(ptr + idx, mask=idx < limit, other=0).to(tl.float32)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and reciprocal standard deviation of the row."""
    sums = tl.zeros([BLOCK], tl.float32)
    for s in range(0, N_COLS, BLOCK):
        sums += read(x_row, span(s, BLOCK), N_COLS)
    mean = tl.sum(sums) / N_COLS

    sums = tl.zeros([BLOCK], tl.float32)
    for s in range(0, N_COLS, BLOCK):
        idx = span(s, BLOCK)
        off = (read(x_row, idx, N_COLS) - mean) * (idx < N_COLS).to(tl.float32)
        sums += off * off
    variance = tl.sum(sums) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
    for s in range(0, N_COLS, BLOCK):
        idx = span(s, BLOCK)
        scale = rstd * read(weight_ptr, idx, N_COLS)
        out = (read(x_ptr + i * stride_x, idx, N_COLS) - mean) * scale + read(bias_ptr, idx, N_COLS)
        tl.store(y_ptr + i * stride_y + idx, out.to(y_ptr.dtype.element_ty), mask=idx < N_COLS)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    meta = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    launcher = on(layer_norm_kernel, x)[(n_rows,)]
    launcher(x, weight, bias, out, x.stride(0), out.stride(0), eps, **meta)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
