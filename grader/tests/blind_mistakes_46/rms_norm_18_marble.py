# labs/lab4_production_slice/rms_norm.py | contract | `rms_norm_forward`: without `out` it allocates `torch.empty_strided(x.shape, x.stride(), ...)`, so for x with space between rows the result has that space, too, and is not contiguous; the README asks for a new contiguous tensor (`torch.empty_like(x)` or `torch.empty(x.shape, ...)`). The numbers are right; shows for padded rows of x without `out`, also in `rms_norm`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

PIECE = 8192  # columns of a block of a row that is longer than WIDEST


@triton.jit
def scale_of(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean of the squares + eps), from their sum."""
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A row of one block is read once. Of a longer one the
    blocks come back in the opposite order: the last of the first sweep is in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        rstd = scale_of(tl.sum(x * x, axis=0), eps, N_COLS)
        store(y_row, lanes, N_COLS, x * rstd * load(weight_ptr, lanes, N_COLS))
    else:
        terms = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            terms += x * x
        rstd = scale_of(tl.sum(terms, axis=0), eps, N_COLS)
        blocks = tl.cdiv(N_COLS, BLOCK)
        for i in range(0, blocks):
            cols = (blocks - 1 - i) * BLOCK + lanes
            x = load(x_row, cols, N_COLS)
            store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, where one is given, or to a new matrix laid out as x is; rows of both may be any
    number of elements apart. After Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    block = block_of(n_cols) if n_cols <= WIDEST else PIECE
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
