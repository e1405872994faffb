# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel, tail of the second sweep: `load(weight_ptr, lane, REST)` takes the first weights; it should be load(weight_ptr + FULL, lane, REST). Rows longer than a block (8192) with a partial last block are wrong in these last columns.
"""RMSNorm over rows of any length, and the same as an operator."""

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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    Whole blocks first, without a mask, then what is left with one.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    REST: tl.constexpr = N_COLS % BLOCK
    FULL: tl.constexpr = N_COLS - REST

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, FULL, BLOCK):
        x = tl.load(x_row + start + lane).to(tl.float32)
        acc += x * x
    if REST > 0:
        x = load(x_row + FULL, lane, REST)
        acc += x * x
    squares = tl.sum(acc, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, FULL, BLOCK):
        x = tl.load(x_row + start + lane).to(tl.float32)
        w = tl.load(weight_ptr + start + lane).to(tl.float32)
        tl.store(y_row + start + lane, (x * rstd * w).to(y_ptr.dtype.element_ty))
    if REST > 0:
        x = load(x_row + FULL, lane, REST)
        w = load(weight_ptr, lane, REST)
        store(y_row + FULL, lane, REST, x * rstd * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 8192)
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
