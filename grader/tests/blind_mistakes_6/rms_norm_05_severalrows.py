# labs/lab4_production_slice/rms_norm.py | honest | Nothing is wrong: a program computes up to 8 short rows as a tile, and long rows one by one in blocks of at most 4096 columns.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows from i * ROWS on."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows
    squares = tl.zeros((ROWS, 1), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        at = first + columns
        x = tl.load(x_ptr + rows * stride_x + at, mask=exists & (at < N_COLS), other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=1, keep_dims=True)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for first in range(0, N_COLS, BLOCK):
        at = first + columns
        inside = exists & (at < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + at, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + at, mask=at < N_COLS, other=0.0).to(tl.float32)
        tl.store(y_ptr + rows * stride_y + at, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 4096)
    tile_rows = max(1, min(4096 // block, 8))
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, tile_rows),)]
    strides = (x.stride(0), out.stride(0))
    launch(x, weight, out, n_rows, *strides, eps, N_COLS=n_cols, ROWS=tile_rows, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
