# labs/lab4_production_slice/rms_norm.py | error | In rms_norm_kernel, branch `if N_COLS <= BLOCK`: it uses `x`, which is first assigned inside the loop above. Triton drops names that are first assigned in the body of a for, so the kernel does not compile ("x is not defined") for rows of up to 16384 columns, on a GPU or for one; longer rows take the other branch and are right, and so is everything in the interpreter. x has to be loaded outside of the loop (or again behind it).
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

    A row of one block is still in registers when its sum is known. A longer one is read again.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        partial += x * x
    squares = tl.sum(partial, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    if N_COLS <= BLOCK:
        store(y_row, lanes, N_COLS, x * rstd * load(weight_ptr, lanes, N_COLS))
    else:
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            again = load(x_row, cols, N_COLS)
            store(y_row, cols, N_COLS, again * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    Rows of x and of `out` may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    width = x.shape[1]
    launch = on(rms_norm_kernel, x)[(x.shape[0],)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=width, BLOCK=block_of(width))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
