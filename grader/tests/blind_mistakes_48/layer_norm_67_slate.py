# labs/lab4_production_slice/layer_norm.py | two mistakes | 1: in `layer_norm_kernel` `weight = load(weight_ptr, cols, N_COLS)` and `bias = load(bias_ptr, cols, N_COLS)` are loaded once, before the loop over blocks, so every later block takes weight and bias of the first; they should be loaded at `start + cols`. Wrong from column 4096 on in rows of more than 4096 columns. 2: `y_row = y_ptr + row * stride_y` multiplies in int32; it should be `tl.cast(row, tl.int64) * stride_y`, as for x. Wrong, and out of bounds, where a row of `out` begins at 2^31 elements or more.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

BLOCK_AT_MOST = 4096  # columns at a time
TOGETHER = tl.constexpr(4)  # rows of a program, one after the other
WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: each block has a mean and a sum of squared differences from it, and is joined to the blocks
    before it by the formula of Chan, Golub and LeVeque.
    """
    count = 0.0
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        here = tl.sum(inside.to(tl.float32), axis=0)
        mean_here = tl.sum(x, axis=0) / here
        off = tl.where(inside, x - mean_here, 0.0)
        both = count + here
        gap = mean_here - mean
        squares += tl.sum(off * off, axis=0) + gap * gap * (count * here / both)
        mean += gap * (here / both)
        count = both
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


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
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes TOGETHER rows.

    Weight and bias are the same for all of them, and are loaded once.
    """
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    bias = load(bias_ptr, cols, N_COLS)
    for k in range(0, TOGETHER):
        row = tl.program_id(axis=0) * TOGETHER + k
        if row < n_rows:
            x_row = x_ptr + tl.cast(row, tl.int64) * stride_x
            y_row = y_ptr + row * stride_y
            mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
            for start in range(0, N_COLS, BLOCK):
                n = (load(x_row, start + cols, N_COLS) - mean) * rstd
                store(y_row, start + cols, N_COLS, n * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols)."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_AT_MOST)
    on(layer_norm_kernel, x)[(triton.cdiv(n_rows, TOGETHER),)](
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
