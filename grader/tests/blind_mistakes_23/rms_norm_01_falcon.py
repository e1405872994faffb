# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel multiplies by `1.0 + weight` (the convention of Gemma) where the README asks for n * weight. Every case of rms_norm_forward is wrong, by x * rstd.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

PLANS = [triton.Config({"BLOCK": 512 * warps}, num_warps=warps) for warps in (2, 4, 8, 16)]


@triton.jit
def reciprocal_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of a row."""
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += x * x
    return tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=PLANS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalise and scale row i; program i does it."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    rstd = reciprocal_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gain = 1.0 + load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * rstd * gain)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, (n_rows, n_cols), with weight (n_cols,), into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
