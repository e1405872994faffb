# labs/lab4_production_slice/rms_norm.py | right | Right, but unusual: a program has a 2-D tile of several rows where rows are short, with one sum along axis 1, and the division is by the root itself.
"""RMSNorm over rows of any length, several short rows at a time, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

AREA = 2048  # elements of a tile: short rows share a program


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
    HEIGHT: tl.constexpr,
):
    """Program i computes the rows i * HEIGHT to (i + 1) * HEIGHT - 1, as far as they exist."""
    rows = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    row_mask = rows < n_rows
    rows = rows.to(tl.int64)
    lanes = tl.arange(0, BLOCK)[None, :]

    squares = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        mask = row_mask & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
    mean_square = tl.sum(squares, axis=1)[:, None] / N_COLS
    # rows that do not exist would divide by 0 for eps = 0
    root = tl.where(row_mask, tl.sqrt(mean_square + tl.cast(eps, tl.float32)), 1.0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        mask = row_mask & (cols < N_COLS)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x / root * weight
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    height = max(1, min(16, AREA // block))
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, height),)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        HEIGHT=height,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
