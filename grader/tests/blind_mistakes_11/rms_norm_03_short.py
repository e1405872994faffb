# labs/lab4_production_slice/rms_norm.py | error | the sum starts as the integer squares = 0 and becomes fp32 in the loop; Triton does not compile a loop-carried variable whose type changes (int32 -> fp32); must be 0.0. Shows in every launch on a GPU; the interpreter runs it and the numbers are right.
"""RMSNorm, each row by one program."""

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
    i = tl.program_id(0).to(tl.int64)
    x_ptr += i * stride_x
    y_ptr += i * stride_y
    block = tl.arange(0, BLOCK)

    squares = 0
    for first in range(0, N_COLS, BLOCK):
        x = load(x_ptr, first + block, N_COLS)
        squares += tl.sum(x * x, axis=0)

    mean_square = squares / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    for first in range(0, N_COLS, BLOCK):
        cols = first + block
        n = load(x_ptr, cols, N_COLS) * rstd
        store(y_ptr, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(rms_norm_kernel, x)[(rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
