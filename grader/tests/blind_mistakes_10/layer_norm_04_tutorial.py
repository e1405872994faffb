# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) the variance is the mean of the squares minus the square of the mean (`squares / N_COLS - mean * mean`), which loses its digits where the mean is large; must be the mean of squared differences, after the mean. (2) the kernel has one `stride` for x and y and gets x.stride(0); y needs out.stride(0). Shows where the rows of x and out lie differently far apart.
"""LayerNorm, after the forward kernel of tutorial 05, in two sweeps."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Both sums in one sweep over the row."""
    _sum = tl.zeros([BLOCK], dtype=tl.float32)
    _squares = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        _sum += a
        _squares += a * a
    mean = tl.sum(_sum, axis=0) / N_COLS
    squares = tl.sum(_squares, axis=0)
    variance = tl.maximum(squares / N_COLS - mean * mean, 0.0)
    return mean, 1 / tl.sqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(X, W, B, Y, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Map the program to the row it computes."""
    row = tl.program_id(0).to(tl.int64)
    X += row * stride
    Y += row * stride
    mean, rstd = mean_and_rstd(X, eps, N_COLS, BLOCK)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(B + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        y = x_hat * w + b
        tl.store(Y + cols, y.to(Y.dtype.element_ty), mask=mask)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of the rows of x."""
    y = torch.empty_like(x) if out is None else out
    M, N = x.shape
    on(layer_norm_kernel, x)[(M,)](x, weight, bias, y, x.stride(0), eps, N_COLS=N, BLOCK=block_of(N))
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
