# labs/lab4_production_slice/rms_norm.py | error | `warps_of` returns `min(16, max(4, triton.cdiv(n_cols, COLS_OF_A_WARP)))`, which need not be a power of two; it should be rounded up to one (`triton.next_power_of_2`). Triton refuses the launch (num_warps must be a power of 2) for 2049 to 3584 and 4097 to 7680 columns, such as 2600 and 3001; all other lengths are right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

COLS_OF_A_WARP = 512


@triton.jit
def sum_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the squares of a row, in fp32: each lane adds up its own, and the lanes are added once."""
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    return tl.sum(squares, axis=0)


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    power = sum_of_squares(x_row, N_COLS, BLOCK) / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def warps_of(n_cols: int) -> int:
    """Return how many warps a program has: 4 to 16, by the columns of its row."""
    return min(16, max(4, triton.cdiv(n_cols, COLS_OF_A_WARP)))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
        num_warps=warps_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
