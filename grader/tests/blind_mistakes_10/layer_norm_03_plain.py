# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd lets the lanes past the end add (0 - mean)^2 and takes `PAD * mean * mean` off the total afterwards, so with a large mean both are large and the digits of the variance are lost; must be 0 in these lanes (tl.where). Shows where BLOCK does not divide the row and |mean| is much larger than the deviation, as 10000 against 1.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    PAD: tl.constexpr = BLOCKS * BLOCK - N_COLS  # lanes past the end, which load 0

    total = 0.0
    for i in range(BLOCKS):
        total += tl.sum(load(x_row, i * BLOCK + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    for i in range(BLOCKS):
        d = load(x_row, i * BLOCK + tl.arange(0, BLOCK), N_COLS) - mean
        squares += tl.sum(d * d, axis=0)
    # Each lane past the end has added (0 - mean) ** 2. No mask in the loop, one correction behind it.
    variance = tl.maximum(squares - PAD * mean * mean, 0.0) / N_COLS
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
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
