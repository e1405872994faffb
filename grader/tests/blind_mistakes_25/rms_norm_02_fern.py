# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel, `tl.sum(tile, axis=0, keep_dims=True)`: the squares of a tile (rows, columns) are summed over the four rows instead of over the columns, so each column gets an rstd of its own and nearly every element is wrong. It should be `axis=1`, which gives one sum for each row.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TALL = 4  # rows of a program
WIDEST_TILE = 4096  # columns of a tile of four rows


@triton.jit
def read_tile(x_rows, there, cols, N_COLS: tl.constexpr):
    """The columns `cols` of some rows in fp32, 0 where there is no such row or column."""
    return tl.load(x_rows + cols, mask=there & (cols < N_COLS), other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    TALL: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes TALL rows from row i * TALL on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns. The weight is
    loaded once for all rows of a program.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    there = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    # Squares are added element by element, and reduced once behind the loop.
    tile = tl.zeros((TALL, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = read_tile(x_rows, there, start + tl.arange(0, BLOCK)[None, :], N_COLS)
        tile += x * x
    squares = tl.sum(tile, axis=0, keep_dims=True)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = read_tile(x_rows, there, cols, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=there & (cols < N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), WIDEST_TILE)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, TALL),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, TALL=TALL
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
