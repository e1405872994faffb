# labs/lab4_production_slice/rms_norm.py | error | In `lanes_of_squares` the sums begin as `tl.zeros((BLOCK,), dtype=x_row.dtype.element_ty)`, which is fp16 or bf16 for such x, and `lanes += x * x` makes them fp32: Triton refuses a variable that changes its type in a loop, so the kernel does not compile for a GPU. It should be `dtype=tl.float32`. Shows in all fp16 and bf16 cases; fp32 is right, and the interpreter does not notice.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def lanes_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK sums of squares of a row: lane j has columns j, j + BLOCK, j + 2 * BLOCK and so on."""
    lanes = tl.zeros((BLOCK,), dtype=x_row.dtype.element_ty)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        lanes += x * x
    return lanes


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    The lanes are added up once for each row, behind the loop over its blocks.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    power = tl.sum(lanes_of_squares(x_row, N_COLS, BLOCK), axis=0) / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols)."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
