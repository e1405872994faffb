# labs/lab4_production_slice/layer_norm.py | honest | mean and variance in one sweep: the blocks' means and sums of squared differences are merged by Chan's formula.
"""LayerNorm; mean and variance in one sweep by merging blocks (Chan et al.)."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    mean = 0.0
    m2 = 0.0
    seen = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        count = tl.cast(tl.minimum(N_COLS - start, BLOCK), tl.float32)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        block_m2 = tl.sum(d * d, axis=0)
        delta = block_mean - mean
        both = seen + count
        mean += delta * (count / both)
        m2 += block_m2 + delta * delta * (seen * count / both)
        seen = both
    return mean, tl.rsqrt(m2 / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, n * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
