# labs/lab4_production_slice/rms_norm.py | wrong everywhere | In `rms_norm_kernel` (`rms_norm_forward`) the squares come from `tl.reduce(x, 1, add_square)` with `total + value * value`, which is not associative: partial sums are squared again, and the first element is never squared. It should be `tl.sum(x * x, axis=1)` (or the combine function `a + b` on `x * x`). Wrong in all cases, a row of one column included; in long rows on a GPU the sum overflows and y is 0.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

TILE = 2048  # elements that a program of short rows has at least


@triton.jit
def add_square(total, value):
    """What tl.reduce does with each element of a row."""
    return total + value * value


@triton.jit
def load_tile(x_ptr, rows, cols, n_rows, n_cols, stride):
    """A tile in fp32, 0 outside of the matrix."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(x_ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes rows i * ROWS to i * ROWS + ROWS - 1.

    Short rows are taken several at a time. BLOCK columns of them are loaded at once.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + lanes)[None, :]
        x = load_tile(x_ptr, rows, cols, n_rows, N_COLS, stride_x)
        squares += tl.reduce(x, 1, add_square)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))[:, None]

    for start in range(0, N_COLS, BLOCK):
        cols = (start + lanes)[None, :]
        x = load_tile(x_ptr, rows, cols, n_rows, N_COLS, stride_x)
        weight = load(weight_ptr, cols, N_COLS)
        y = x * rstd * weight
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    together = max(1, TILE // block)
    launch = on(rms_norm_kernel, x)[(triton.cdiv(n_rows, together),)]
    launch(
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=together, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
