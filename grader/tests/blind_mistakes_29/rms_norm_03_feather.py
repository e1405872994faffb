# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm with at most PROGRAMS programs, each of which takes every PROGRAMS-th row."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096


@triton.jit
def reciprocal_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of one row, in fp32."""
    powers = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        powers += x * x
    # Under torch.compile eps would be fp64.
    return tl.rsqrt(tl.sum(powers, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight, for rows i, i + number of programs, and so on."""
    for index in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(index, tl.int64)
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        scale = reciprocal_rms(x_row, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = load(x_row, cols, N_COLS) * scale
            store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    on(rms_norm_kernel, x)[grid](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
