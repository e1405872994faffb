# labs/lab4_production_slice/rms_norm.py | contract | numbers are right, but without `out` the result is allocated by `x.new_empty_strided(x.shape, x.stride())` and so has the padded rows of x: it must be a new contiguous tensor (torch.empty_like(x)). Shows where the rows of x do not touch and no out is given
"""RMSNorm in one sweep over each row where the row fits into a block."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(0, N_COLS, BLOCK):
        part = load(x_row, at + tl.arange(0, BLOCK), N_COLS)
        squares += part * part
    mean_square = tl.sum(squares, axis=0) / N_COLS
    return tl.rsqrt(mean_square + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + i * stride_x
    y_row = y_ptr + i * stride_y
    r = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for at in range(0, N_COLS, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * r * load(weight_ptr, cols, N_COLS))


def same_layout(x) -> torch.Tensor:
    """An empty tensor for the result, laid out like x."""
    return x.new_empty_strided(x.shape, x.stride())


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    out = same_layout(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
