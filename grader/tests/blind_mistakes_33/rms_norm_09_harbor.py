# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel adds up the squares of x * weight (`weighted(...)` in the first loop) and so divides by the root mean square of the weighted row, where the squares should be those of x alone; wrong in every case in which the weight is not 1 or -1 everywhere
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def weighted(x_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """Return x * weight at some columns of a row, in fp32, and 0 past its end."""
    return load(x_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        value = weighted(x_row, weight_ptr, start + lanes, N_COLS)
        squares += value * value
    deviation = tl.sqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        store(y_row, cols, N_COLS, weighted(x_row, weight_ptr, cols, N_COLS) / deviation)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_cols = x.shape[1]
    grid = (x.shape[0],)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
