# labs/lab4_production_slice/rms_norm.py | corner | In the second loop of rms_norm_kernel the pointer w_at is not moved on, so every block is scaled by the first weights; `w_at += BLOCK` is missing. Shown by rows of more than 4096 columns.
"""RMSNorm with pointers that run along the row."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_at = x_ptr + row * stride_x
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_at, lanes, N_COLS - start)
        squares += tl.sum(x * x, axis=0)
        x_at += BLOCK
    rstd = 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    x_at = x_ptr + row * stride_x
    y_at = y_ptr + row * stride_y
    w_at = weight_ptr
    for start in range(0, N_COLS, BLOCK):
        x = load(x_at, lanes, N_COLS - start)
        w = load(w_at, lanes, N_COLS - start)
        store(y_at, lanes, N_COLS - start, x * rstd * w)
        x_at += BLOCK
        y_at += BLOCK


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=min(block_of(n_cols), 4096))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
