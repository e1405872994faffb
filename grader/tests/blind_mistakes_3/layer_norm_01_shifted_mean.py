# labs/lab4_production_slice/layer_norm.py | wrong everywhere | mean_and_rstd: one sweep over differences from the first element `pivot`; the returned mean is that of x - pivot, and pivot is never added back. It must be mean = pivot + total / N_COLS; rstd is right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    # one pass: differences from the first element keep the digits
    pivot = tl.load(x_row).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    total2 = tl.zeros((BLOCK,), tl.float32)
    for off in range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        d = tl.where(c < N_COLS, load(x_row, c, N_COLS) - pivot, 0.0)
        total += d
        total2 += d * d
    shifted = tl.sum(total, axis=0) / N_COLS
    variance = tl.maximum(tl.sum(total2, axis=0) / N_COLS - shifted * shifted, 0.0)
    mean = shifted
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for off in range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        n = (load(x_row, c, N_COLS) - mean) * rstd
        store(y_row, c, N_COLS, n * load(weight_ptr, c, N_COLS) + load(bias_ptr, c, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
