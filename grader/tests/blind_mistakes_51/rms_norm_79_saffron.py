# labs/lab4_production_slice/rms_norm.py | error | In `rms_norm_kernel`, `y = x * rstd * weight` multiplies (ROWS, COLS) by (ROWS,), which is taken for (1, ROWS); it should be `rstd[:, None]`. The shapes do not go together, an error for rows of up to 1024 columns, where a program has several rows; with more columns ROWS is 1 and the result is right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

WIDE = 8192  # columns of a tile at most
TILE = 2048  # numbers of a tile of short rows


@triton.jit
def tile_at(ptr, rows, cols, n_rows, stride, N_COLS: tl.constexpr):
    """A tile of a matrix in fp32, 0 outside."""
    inside = (rows < n_rows)[:, None] & (cols < N_COLS)[None, :]
    places = ptr + rows[:, None] * stride + cols[None, :]
    return tl.load(places, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, n_rows,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """y = x / sqrt(mean(x * x) + eps) * weight; a program computes ROWS rows, COLS columns at a time.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, COLS):
        x = tile_at(x_ptr, rows, start + lanes, n_rows, stride_x, N_COLS)
        squares += tl.sum(x * x, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, COLS):
        cols = start + lanes
        x = tile_at(x_ptr, rows, cols, n_rows, stride_x, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        inside = (rows < n_rows)[:, None] & (cols < N_COLS)[None, :]
        places = y_ptr + rows[:, None] * stride_y + cols[None, :]
        tl.store(places, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    cols = min(triton.next_power_of_2(n_cols), WIDE)
    rows = max(1, TILE // cols)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, weight, out, x.stride(0), out.stride(0), eps, n_rows,
        N_COLS=n_cols, ROWS=rows, COLS=cols, num_warps=max(4, cols // 512),
    )  # fmt: skip
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
