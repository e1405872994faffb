# labs/lab4_production_slice/layer_norm.py | corner | mean and squares of the blocks are joined as by Chan et al., but each block counts as WIDTH = min(BLOCK, N_COLS) columns; the last block has only N_COLS - start of them, so its mean and its share are wrong: the count must be min(BLOCK, N_COLS - start). Shows where a row has several blocks and does not fill the last one: n_cols above 2048 and no multiple of 2048.
"""LayerNorm with one sweep: each block has a mean and a sum of squares, and the blocks are joined.

After Chan, Golub and LeVeque, 1979.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op


@triton.jit
def join_blocks(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    """Mean and sum of squared differences of a and b together."""
    count = count_a + count_b
    delta = mean_b - mean_a
    mean = mean_a + delta * (count_b / count)
    squares = squares_a + squares_b + delta * delta * (count_a * count_b / count)
    return mean, squares


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a row and 1 / sqrt(variance + eps)."""
    WIDTH: tl.constexpr = BLOCK if BLOCK < N_COLS else N_COLS
    mean = 0.0
    squares = 0.0
    seen = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        block_mean = tl.sum(x, axis=0) / WIDTH
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        block_squares = tl.sum(d * d, axis=0)
        mean, squares = join_blocks(mean, squares, seen, block_mean, block_squares, WIDTH * 1.0)
        seen += WIDTH
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) * rstd * weight + bias for one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = (load(x_row, cols, N_COLS) - mean) * rstd
        y = y * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_ptr + row * stride_y, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of the rows of x, in blocks of at most 2048 columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 2048)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator."""
    return layer_norm_forward(x, weight, bias, eps=eps)
