# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel` (both branches), `rstd = tl.cast(root, tl.float32) * tl.rsqrt(squares + tl.cast(eps, tl.float32))` adds eps to the sum of squares and not to their mean; it should be `squares + eps * N_COLS`. Shows where eps matters: rows of small values (narrow) with the default eps, and eps = 1; right for ordinary rows, for eps = 0 and for one column.
"""RMSNorm over rows of any length, and the same as an operator."""

import math

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE = 2048  # elements of a program at least, so that short rows do not leave its threads idle


@triton.jit
def take(x_ptr, rows, cols, inside, stride_x):
    """A tile of x in fp32, 0 outside of the matrix."""
    return tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def put(y_ptr, rows, cols, inside, stride_y, values):
    """Store a tile of y, rounded to its dtype."""
    tl.store(y_ptr + rows * stride_y + cols, values.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, root,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes the ROWS rows from i * ROWS on.

    root is the square root of N_COLS: sqrt(N_COLS) / sqrt(sum) is 1 / sqrt(mean) without a division.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    if N_COLS <= BLOCK:
        # The rows stay in registers from the sum to the store.
        inside = (rows < n_rows) & (lanes < N_COLS)
        x = take(x_ptr, rows, lanes, inside, stride_x)
        squares = tl.sum(x * x, axis=1, keep_dims=True)
        rstd = tl.cast(root, tl.float32) * tl.rsqrt(squares + tl.cast(eps, tl.float32))
        y = x * rstd * load(weight_ptr, lanes, N_COLS)
        put(y_ptr, rows, lanes, inside, stride_y, y)
    else:
        squares = tl.zeros((ROWS, 1), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            inside = (rows < n_rows) & (start + lanes < N_COLS)
            x = take(x_ptr, rows, start + lanes, inside, stride_x)
            squares += tl.sum(x * x, axis=1, keep_dims=True)
        rstd = tl.cast(root, tl.float32) * tl.rsqrt(squares + tl.cast(eps, tl.float32))
        for start in range(0, N_COLS, BLOCK):
            inside = (rows < n_rows) & (start + lanes < N_COLS)
            x = take(x_ptr, rows, start + lanes, inside, stride_x)
            y = x * rstd * load(weight_ptr, start + lanes, N_COLS)
            put(y_ptr, rows, start + lanes, inside, stride_y, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    rows = max(1, TILE // block)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, math.sqrt(n_cols),
        N_COLS=n_cols, ROWS=rows, BLOCK=block,
    )  # fmt: skip
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
