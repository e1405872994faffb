# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel`, `y_tile = y_ptr + rows * stride_y` multiplies an int32 row number by the stride; it should be `rows.to(tl.int64) * stride_y`, as for x. Shows only where the rows of the result reach beyond 2^31 elements (out with rows far apart, or a very large matrix).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

TILE = 4096  # elements that a program holds: many short rows, or a part of a long one


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows, from row i * ROWS on.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns. A program
    takes a ROWS x BLOCK tile at a time.
    """
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_tile = x_ptr + rows.to(tl.int64) * stride_x
    y_tile = y_ptr + rows * stride_y
    squares = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_tile + (start + lanes), mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    power = tl.sum(squares, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_tile + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_tile + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), TILE)
    rows = TILE // block
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)]
    launch(x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, ROWS=rows)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
