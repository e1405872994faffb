# labs/lab4_production_slice/rms_norm.py | wrong everywhere | In `rms_norm_kernel`, `power = tl.sum(squares, axis=0, keep_dims=True) / N_COLS` adds over the rows of the tile instead of over its columns; it should be `axis=1`. Each column is divided by a norm of its own, taken over the rows of the program. Right only for one row of one column; wrong in all other cases.
"""RMSNorm over rows of any length, several short rows in one program."""

import torch
import triton
import triton.language as tl
from rows import block_of, on
from torch.library import triton_op

TILE = 4096  # elements that a program holds at a time
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i has the rows from i * ROWS on.

    A tile is ROWS rows high and BLOCK columns wide. The squares are added tile by tile, and reduced once.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    power = tl.sum(squares, axis=0, keep_dims=True) / N_COLS
    rstd = tl.rsqrt(power + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), TILE)
    height = min(TILE // block, 16)
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, height),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, ROWS=height, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
