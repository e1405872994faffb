# labs/lab4_production_slice/rms_norm.py | contract | In `rms_norm_forward`, `out = torch.empty_strided(x.shape, x.stride(), ...)` gives the result the row stride of x; without `out` it should be a new contiguous tensor, as `torch.empty_like(x)` or `torch.empty(x.shape, ...)`. The numbers are right; the sentence is broken where x has gaps between its rows and no `out` is given.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 1056  # eight for each SM of an H200


@triton.jit
def factor_of(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean of the squares + eps); torch.compile passes eps as fp64."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, n_rows, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; a program goes on by as many rows as there are programs.

    The weight of a row of one block is loaded once for all rows of the program.
    """
    first, programs = tl.program_id(axis=0), tl.num_programs(axis=0)
    x_row = x_ptr + first.to(tl.int64) * stride_x
    y_row = y_ptr + first.to(tl.int64) * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        weight = load(weight_ptr, lanes, N_COLS)
        for _ in range(first, n_rows, programs):
            x = load(x_row, lanes, N_COLS)
            factor = factor_of(tl.sum(x * x, axis=0), eps, N_COLS)
            store(y_row, lanes, N_COLS, x * factor * weight)
            x_row += programs.to(tl.int64) * stride_x
            y_row += programs.to(tl.int64) * stride_y
    else:
        for _ in range(first, n_rows, programs):
            squares = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                squares += x * x
            factor = factor_of(tl.sum(squares, axis=0), eps, N_COLS)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                y = load(x_row, cols, N_COLS) * factor * load(weight_ptr, cols, N_COLS)
                store(y_row, cols, N_COLS, y)
            x_row += programs.to(tl.int64) * stride_x
            y_row += programs.to(tl.int64) * stride_y


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), device=x.device, dtype=x.dtype)
    block = block_of(n_cols)
    on(rms_norm_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, weight, out, x.stride(0), out.stride(0), eps, n_rows,
        N_COLS=n_cols, BLOCK=block, num_warps=min(16, max(4, block // 512)),
    )  # fmt: skip
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
