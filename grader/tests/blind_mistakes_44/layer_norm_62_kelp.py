# labs/lab4_production_slice/layer_norm.py | right | Unusual: Welford by lanes, each lane with a mean and a sum of squares of its own, begun with the first block and joined once behind the loop by the number of columns of each lane; the last sweep goes from the end of the row to its beginning.
"""LayerNorm over rows of any length, with a mean and a sum of squares in each lane; and an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

LANES = 8192  # at most: each has a mean, a sum of squares and an element of the row in registers
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    Lane j follows the columns j, j + BLOCK, ... by the method of Welford, from the first of them on. Behind the
    loop the lanes are joined: their means by the number of their columns, and the squares of the row are those
    inside of the lanes and those between them. The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    centre = load(x_row, lanes, N_COLS)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(BLOCK, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        step = tl.where(cols < N_COLS, x - centre, 0.0)
        centre += step / (start // BLOCK + 1)
        squares += tl.where(cols < N_COLS, step * (x - centre), 0.0)
    count = ((N_COLS - lanes + BLOCK - 1) // BLOCK).to(tl.float32)
    mean = tl.sum(count * centre, axis=0) / N_COLS
    apart = centre - mean
    variance = tl.sum(squares + count * apart * apart, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time,
    the last ones first: those of the end of a long row were read last, and are still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), LANES)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
