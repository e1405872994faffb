# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_forward hands the kernel `floor_of(eps, x.dtype)`, which replaces eps = 0 by torch.finfo(dtype).eps (1.2e-7, 9.8e-4, 7.8e-3 for fp32, fp16, bf16). The contract says that eps of any size is honoured, also 0: eps should be handed on as it is. Shows only for eps = 0, clearly in rows whose mean square is not much larger than that number (as narrow rows of std 0.002); any eps above 0 is right.
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

    A row of one block is read once and stays in registers. A longer one is read twice.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    x = load(x_row, cols, N_COLS)
    squares = tl.sum(x * x, axis=0)
    if N_COLS > BLOCK:
        for start in range(BLOCK, N_COLS, BLOCK):
            more = load(x_row, start + cols, N_COLS)
            squares += tl.sum(more * more, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))
    if N_COLS > BLOCK:
        for start in range(BLOCK, N_COLS, BLOCK):
            more = load(x_row, start + cols, N_COLS)
            store(y_row, start + cols, N_COLS, more * rstd * load(weight_ptr, start + cols, N_COLS))


def floor_of(eps, dtype):
    """What stands under the root beside the mean square."""
    return eps if eps > 0.0 else torch.finfo(dtype).eps


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    shape = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), floor_of(eps, x.dtype), **shape
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
