# labs/lab4_production_slice/rms_norm.py | wrong everywhere | `inverse_norm`: `return N_COLS * tl.rsqrt(squares + N_COLS * ...)`. Taken out of the root, N_COLS becomes its square root: it should be `tl.sqrt` of N_COLS as the factor. All results are too large by sqrt(n_cols); right for one column only.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LANES = 4096  # columns of a block at most: each lane adds up squares of its own


@triton.jit
def inverse_norm(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(squares / N_COLS + eps), with N_COLS taken out of the root: no division is left."""
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return N_COLS * tl.rsqrt(squares + N_COLS * tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS)
        terms += x * x
    factor = inverse_norm(tl.sum(terms, axis=0), eps, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS)
        weight = load(weight_ptr, start + cols, N_COLS)
        store(y_row, start + cols, N_COLS, x * factor * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), LANES)
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
