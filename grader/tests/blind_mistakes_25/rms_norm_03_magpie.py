# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) inverse_rms, `(squares + eps) / N_COLS`: eps is divided by the number of columns too, so y is wrong where eps counts (eps = 1, or small values of x) and n_cols > 1; it should be `squares / N_COLS + eps`. (2) rms_norm_kernel, `scale = load(weight_ptr, lanes, N_COLS)` before the loops: all blocks of a row get the weight of the first block, so columns from 8192 on are wrong; the weight should be loaded at `cols` in the loop over the blocks.
"""RMSNorm over rows of any length, and the same as an operator.

A limited number of programs, each with many rows: i, i + programs, i + 2 * programs and so on.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2048
WIDTH = 8192


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return 1 / (root of the mean square of a row), in fp32."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    return tl.rsqrt((squares + tl.cast(eps, tl.float32)) / N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; a program computes every row whose turn it is.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next.
    """
    lanes = tl.arange(0, BLOCK)
    scale = load(weight_ptr, lanes, N_COLS)  # stays in registers from row to row
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        rstd = inverse_rms(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * scale)
        row += tl.num_programs(axis=0)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    on(rms_norm_kernel, x)[grid](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
