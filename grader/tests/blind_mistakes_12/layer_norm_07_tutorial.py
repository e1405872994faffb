# labs/lab4_production_slice/layer_norm.py | contract | without out the new tensor gets the strides of x by empty_strided, it must be contiguous; numbers are right, shows when no out is given and the rows of x lie apart
"""
Layer normalisation
===================

In this file we write the forward pass of LayerNorm. Each program of the kernel has one row. It needs

1. the mean of the row,
2. the variance of the row (after the mean, so that no digits are lost),
3. a last pass that writes the result.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

# %%
# Statistics of a row
# -------------------


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    # Step 1: the mean
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N_COLS
    # Step 2: the variance
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        a = tl.where(cols < N_COLS, a - mean, 0.0)
        _var += a * a
    var = tl.sum(_var, axis=0) / N_COLS
    return mean, 1 / tl.sqrt(var + tl.cast(eps, tl.float32))


# %%
# The kernel
# ----------


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    X,  # pointer to the input
    W,  # pointer to the weights
    B,  # pointer to the biases
    Y,  # pointer to the output
    stride_x,  # how much to add to X to move by 1 row
    stride_y,  # the same for Y
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Normalise one row, then apply the linear transformation."""
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    Y += row * stride_y
    mean, rstd = mean_and_rstd(X, eps, N_COLS, BLOCK)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        w = load(W, cols, N_COLS)
        b = load(B, cols, N_COLS)
        x_hat = (load(X, cols, N_COLS) - mean) * rstd
        store(Y, cols, N_COLS, x_hat * w + b)


# %%
# The launch
# ----------


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), device=x.device, dtype=x.dtype)
    M, N = x.shape
    on(layer_norm_kernel, x)[(M,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
