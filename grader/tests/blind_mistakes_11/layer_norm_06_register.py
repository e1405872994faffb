# labs/lab4_production_slice/layer_norm.py | contract | `whole` loads a block of x without a mask and sets the lanes past the end to 0 afterwards (tl.where); README: "The space between rows is neither read nor written". The load must have the mask cols < N_COLS. The numbers are right; shows where n_cols is no multiple of BLOCK: it reads the padding or the next row, and past the end of the tensor in the last row.
"""LayerNorm; a row of one block is loaded once and stays in registers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def whole(x_row, cols, N_COLS: tl.constexpr):
    """Columns of x in fp32, with 0 past the end of the row.

    Without a mask in the load it is as wide as the hardware allows.
    """
    x = tl.load(x_row + cols).to(tl.float32)
    return tl.where(cols < N_COLS, x, 0.0)


@triton.jit
def rstd_of(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(variance + eps)."""
    return 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The two numbers of a row."""
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(whole(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean /= N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, whole(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
    return mean, rstd_of(squares, eps, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Short rows stay in registers; long rows are loaded three times."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if N_COLS <= BLOCK:
        cols = tl.arange(0, BLOCK)
        x = whole(x_row, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - tl.sum(x, axis=0) / N_COLS, 0.0)
        n = d * rstd_of(tl.sum(d * d, axis=0), eps, N_COLS)
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))
    else:
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = (whole(x_row, cols, N_COLS) - mean) * rstd
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm over rows."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """As an operator."""
    return layer_norm_forward(x, weight, bias, eps=eps)
