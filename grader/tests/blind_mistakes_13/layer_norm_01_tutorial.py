# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In layer_norm_fwd `x_hat = (x - mean) / rstd` divides by rstd; it should have been `(x - mean) * rstd`, because rstd is already the reciprocal 1 / sqrt(variance + eps).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    # Compute mean
    _mean = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        a = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        _mean += a
    mean = tl.sum(_mean, axis=0) / N_COLS
    # Compute variance
    _var = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        x = tl.where(cols < N_COLS, x - mean, 0.0)
        _var += x * x
    var = tl.sum(_var, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(var + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_fwd(X, W, B, Y, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    # Map the program id to the row of X and Y it should compute.
    row = tl.program_id(0).to(tl.int64)
    Y += row * stride_y
    X += row * stride_x
    mean, rstd = mean_and_rstd(X, eps, N_COLS, BLOCK)
    # Normalize and apply linear transformation
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N_COLS
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(B + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        x_hat = (x - mean) / rstd
        y = x_hat * w + b
        # Write output
        tl.store(Y + cols, y.to(Y.dtype.element_ty), mask=mask)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    M, N = x.shape
    on(layer_norm_fwd, x)[(M,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
