# labs/lab4_production_slice/rms_norm.py | error | In `rms_norm_forward`, `band = min(ELEMENTS // block, 8)` is 0 where the block is 16384 wide, so `triton.cdiv(n_rows, band)` raises ZeroDivisionError; it should be at least 1, `max(1, min(ELEMENTS // block, 8))`. Shows for all rows of more than 8192 columns; shorter ones are right.
"""RMSNorm over rows of any length, a band of rows for each program, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

ELEMENTS = 8192  # of a band: as many rows as fit, but no more than 8
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def reciprocal(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean of the squares + eps); torch.compile passes eps as fp64."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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
    BAND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has the rows i * BAND to i * BAND + BAND - 1.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns. Where a row is
    one block, the weight is loaded once for the band.
    """
    first = tl.program_id(axis=0) * BAND
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        weight = load(weight_ptr, lanes, N_COLS)
        for i in range(first, min(first + BAND, n_rows)):
            row = tl.cast(i, tl.int64)
            x = load(x_ptr + row * stride_x, lanes, N_COLS)
            rstd = reciprocal(tl.sum(x * x, axis=0), eps, N_COLS)
            store(y_ptr + row * stride_y, lanes, N_COLS, x * rstd * weight)
    else:
        for i in range(first, min(first + BAND, n_rows)):
            row = tl.cast(i, tl.int64)
            squares = 0.0
            for start in range(0, N_COLS, BLOCK):
                x = load(x_ptr + row * stride_x, start + lanes, N_COLS)
                squares += tl.sum(x * x, axis=0)
            rstd = reciprocal(squares, eps, N_COLS)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                y = load(x_ptr + row * stride_x, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
                store(y_ptr + row * stride_y, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    band = min(ELEMENTS // block, 8)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, band),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BAND=band, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
