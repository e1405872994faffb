# labs/lab4_production_slice/layer_norm.py | corner | layer_norm_kernel, last partial block: the bias is loaded by `load(bias_ptr, lane, TAIL)`, which gives the first columns of the bias; it should be `load(bias_ptr + FULL, lane, TAIL)`. Rows longer than 2048 that are no multiple of 2048 are wrong in their last partial block; shorter rows have FULL = 0 and are right.
"""LayerNorm: whole blocks without a mask, then the rest of the row with one."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

WIDTH = 2048  # a block has at most so many columns


def width_of(n_cols):
    """A power of two for tl.arange, not wider than WIDTH."""
    return WIDTH if n_cols > WIDTH else triton.next_power_of_2(n_cols)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of the row, and one over the root of its variance plus eps."""
    FULL: tl.constexpr = N_COLS // BLOCK * BLOCK  # columns in whole blocks
    TAIL: tl.constexpr = N_COLS - FULL
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, FULL, BLOCK):
        acc += tl.load(x_row + start + lane).to(tl.float32)
    if TAIL > 0:
        acc += load(x_row + FULL, lane, TAIL)
    mean = tl.sum(acc, axis=0) / N_COLS

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, FULL, BLOCK):
        d = tl.load(x_row + start + lane).to(tl.float32) - mean
        acc += d * d
    if TAIL > 0:
        d = load(x_row + FULL, lane, TAIL) - mean
        acc += tl.where(lane < TAIL, d * d, 0.0)
    variance = tl.sum(acc, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def affine(x, mean, rstd, w, b):
    """Normalise, scale, shift."""
    return (x - mean) * rstd * w + b


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    FULL: tl.constexpr = N_COLS // BLOCK * BLOCK
    TAIL: tl.constexpr = N_COLS - FULL
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    for start in range(0, FULL, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols).to(tl.float32)
        w = tl.load(weight_ptr + cols).to(tl.float32)
        b = tl.load(bias_ptr + cols).to(tl.float32)
        tl.store(y_row + cols, affine(x, mean, rstd, w, b).to(y_ptr.dtype.element_ty))

    if TAIL > 0:
        x = load(x_row + FULL, lane, TAIL)
        w = load(weight_ptr + FULL, lane, TAIL)
        b = load(bias_ptr, lane, TAIL)
        store(y_row + FULL, lane, TAIL, affine(x, mean, rstd, w, b))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x, to out where it is given."""
    if out is None:
        out = x.new_empty(x.shape)
    rows, cols = x.shape
    launch = on(layer_norm_kernel, x)[(rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=width_of(cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
