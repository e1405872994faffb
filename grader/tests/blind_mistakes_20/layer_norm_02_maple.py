# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd: the last block is moved back so that it ends with the row and overlaps the block before; the loop of the mean leaves the overlap out with `cols >= start`, but the loop of the variance masks with `cols < N_COLS` alone, so columns of the overlap count twice. It should be `(cols >= start) & (cols < N_COLS)`; wrong for rows longer than BLOCK (2048 in layer_norm_forward) that are no multiple of it.
"""LayerNorm over rows of any length. The blocks of a long row are all full: the last one is moved back."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

MOST = 2048  # columns of a block


@triton.jit
def place(start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Columns of the block that belongs to `start`: from start on, or the last BLOCK of the row."""
    LAST: tl.constexpr = N_COLS - BLOCK if N_COLS > BLOCK else 0
    return tl.minimum(start, LAST) + tl.arange(0, BLOCK)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = place(start, N_COLS, BLOCK)
        x = load(x_row, cols, N_COLS)  # 0 past the end of a short row
        total += tl.sum(tl.where(cols >= start, x, 0.0), axis=0)
    mean = total / N_COLS

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = place(start, N_COLS, BLOCK)
        d = load(x_row, cols, N_COLS) - mean
        d = tl.where(cols < N_COLS, d, 0.0)
        squares += tl.sum(d * d, axis=0)
    variance = squares / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row for each program. Where two blocks overlap, both store the same numbers."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = place(start, N_COLS, BLOCK)
        scale = load(weight_ptr, cols, N_COLS)
        shift = load(bias_ptr, cols, N_COLS)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * scale + shift)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, to `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.size(0), x.size(1)
    block = min(triton.next_power_of_2(cols), MOST)
    on(layer_norm_kernel, x)[(rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
