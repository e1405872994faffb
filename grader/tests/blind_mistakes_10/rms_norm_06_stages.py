# labs/lab4_production_slice/rms_norm.py | right | two kernels: the first stores rstd of every row in an fp32 vector, the second applies it on a grid of rows and pieces of 1024 columns, from the last column backwards.
"""RMSNorm in two stages: the statistics of the rows, and then the rows."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PIECE = 1024


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rstd_kernel(x_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """rstd[i] = 1 / sqrt(mean of the squares of row i + eps)."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    mean = tl.sum(squares, axis=0) / N_COLS
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(mean + tl.cast(eps, tl.float32)))


@triton.jit
def apply_kernel(x_ptr, weight_ptr, rstd_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program (i, k) has row i and the k-th piece of BLOCK columns from the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    piece = tl.num_programs(axis=1) - 1 - tl.program_id(axis=1)
    cols = piece * BLOCK + tl.arange(0, BLOCK)
    rstd = tl.load(rstd_ptr + row)
    x = load(x_ptr + row * stride_x, cols, n_cols)
    weight = load(weight_ptr, cols, n_cols)
    store(y_ptr + row * stride_y, cols, n_cols, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(rstd_kernel, x)[(n_rows,)](x, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    on(apply_kernel, x)[(n_rows, triton.cdiv(n_cols, PIECE))](
        x, weight, rstd, out, n_cols, x.stride(0), out.stride(0), BLOCK=PIECE
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
