# labs/lab4_production_slice/rms_norm.py | honest | Right; narrow rows share a program in a 2-D tile, one reduction after the loop.
"""RMSNorm; narrow rows share a program (ROWS of them), wide rows have one of their own."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    exists = (rows < n_rows)[:, None]
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tl.load(x_rows + cols, mask=exists & (cols < N_COLS), other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = exists & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd[:, None] * w
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = block_of(n_cols)
    rows = max(1, min(16, 2048 // block))
    grid = (triton.cdiv(n_rows, rows),)
    on(rms_norm_kernel, x)[grid](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=rows, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
