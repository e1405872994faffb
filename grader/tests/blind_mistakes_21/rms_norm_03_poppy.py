# labs/lab4_production_slice/rms_norm.py | contract | rms_norm_forward without out allocates x.new_empty_strided(x.shape, x.stride()), which for a padded x is not contiguous; the README asks for a new contiguous tensor. The values are right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of a row, in fp32."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    rstd = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    assert x.ndim == 2 and x.shape[1] == weight.shape[0], "x is (n_rows, n_cols), weight is (n_cols,)"
    if out is None:
        # laid out like x
        out = x.new_empty_strided(x.shape, x.stride())
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
