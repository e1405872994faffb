# labs/lab4_production_slice/rms_norm.py | contract | Without `out`, rms_norm_forward allocates `x.new_empty_strided(x.shape, x.stride())`: for an x with padded rows the result is not contiguous. The README asks for a new contiguous tensor, such as torch.empty_like(x). All values are right.
"""RMSNorm in two kernels: a number for each row, then the result in tiles."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

WIDTH = 2048  # columns of a program of scale_rows


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def measure_rows(x_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """rstd[i] = 1 / sqrt(mean(x[i] * x[i]) + eps)."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    tl.store(rstd_ptr + row, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32)))


@triton.jit
def scale_rows(x_ptr, weight_ptr, rstd_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    """y = x * rstd * weight; program (i, j) has WIDTH columns of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * WIDTH + tl.arange(0, WIDTH)
    n = load(x_ptr + row * stride_x, cols, n_cols) * tl.load(rstd_ptr + row)
    store(y_ptr + row * stride_y, cols, n_cols, n * load(weight_ptr, cols, n_cols))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x; `out` may have another row stride than x."""
    n_rows, n_cols = x.shape
    if out is None:
        # like x in shape, dtype and layout
        out = x.new_empty_strided(x.shape, x.stride())
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(measure_rows, x)[(n_rows,)](x, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    on(scale_rows, x)[(n_rows, triton.cdiv(n_cols, WIDTH))](
        x, weight, rstd, out, n_cols, x.stride(0), out.stride(0), WIDTH=WIDTH
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
