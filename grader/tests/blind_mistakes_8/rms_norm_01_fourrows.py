# labs/lab4_production_slice/rms_norm.py | contract | Without `out` the result is allocated as fp32 whatever the dtype of x; it must be a new tensor of the dtype of x. Shows for fp16 and bf16.
"""RMSNorm, four rows to a program, in tiles."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

ROWS = tl.constexpr(4)
COLS = tl.constexpr(256)


@triton.jit
def rms_norm_tiles(x_ptr, weight_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, eps):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    sums = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(0, n_cols, COLS):
        inside = (row < n_rows) & (first + col < n_cols)
        x = tl.load(x_ptr + row * stride_x + first + col, mask=inside, other=0.0).to(tl.float32)
        sums += x * x
    mean = tl.sum(sums, axis=1, keep_dims=True) / n_cols
    # rows past the end would divide by 0 if eps is 0
    rms = tl.where(row < n_rows, tl.sqrt(mean + tl.cast(eps, tl.float32)), 1.0)
    for first in range(0, n_cols, COLS):
        inside = (row < n_rows) & (first + col < n_cols)
        x = tl.load(x_ptr + row * stride_x + first + col, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + first + col, mask=first + col < n_cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * stride_y + first + col, (x / rms * w).to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=torch.float32)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    on(rms_norm_tiles, x)[grid](x, weight, out, n_rows, n_cols, x.stride(0), out.stride(0), eps)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
