# labs/lab4_production_slice/rms_norm.py | wrong everywhere | `add_squares` returns `a * a + b * b` and is the combine function of `squares += tl.reduce(x, 0, add_squares)` in `inverse_rms`. `tl.reduce` also feeds partial results to it, which are squared again; it should reduce `x * x` with `a + b`. Wrong for every number of columns but 2 (one column gives x in place of its square; long rows overflow to inf and y is 0).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op


def warps_of(block: int) -> int:
    """At most 32 numbers of a block for each thread, and at least 4 warps."""
    return min(16, max(4, block // 512))


@triton.jit
def add_squares(a, b):
    """How two numbers of a row are put together."""
    return a * a + b * b


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean(x * x) + eps) of a row, in fp32."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.reduce(x, 0, add_squares)
    # torch.compile hands in eps as fp64.
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    factor = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * factor * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, num_warps=warps_of(block)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
