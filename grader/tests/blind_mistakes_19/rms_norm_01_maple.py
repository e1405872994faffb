# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_forward: ONE_BLOCK is n_cols <= WIDEST (16384), but the autotuner may run BLOCK=2048 or 8192, and then the branch without loops leaves out all columns from BLOCK on; the branch should test N_COLS <= BLOCK
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WIDEST, load, on, store
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 8192}, num_warps=8),
    triton.Config({"BLOCK": WIDEST}, num_warps=16),
]


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    small = tl.cast(eps, tl.float32)
    if ONE_BLOCK:
        # the row stays in registers: x is loaded once
        cols = tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + small)
        store(y_row, cols, N_COLS, x * rstd * weight)
    else:
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
            squares += tl.sum(x * x, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + small)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS)
            store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ONE_BLOCK=n_cols <= WIDEST
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
