# labs/lab4_production_slice/rms_norm.py | error | In `even_width` (`rms_norm_forward`), `return triton.cdiv(n_cols, parts * 256) * 256` gives a width that is a multiple of 256 and need not be a power of two, and `tl.arange(0, BLOCK)` in `rms_norm_kernel` then does not compile ("arange's range must be a power of 2"). It should be rounded up to a power of two. Shows for most rows of more than 16384 columns (16385 gives 8448, 24576 gives 12288, 40000 gives 13568); up to 16384 columns, and where the width is 16384 (32768, 131072), all is right.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WIDEST, on, store
from torch.library import triton_op

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


def even_width(n_cols: int) -> int:
    """Return the width of a block: that of the row, or of equal parts of a row that is longer than WIDEST.

    With parts of 16384 a row of 16385 columns would have a second block for a single column.
    """
    if n_cols <= WIDEST:
        return triton.next_power_of_2(n_cols)
    parts = triton.cdiv(n_cols, WIDEST)
    return triton.cdiv(n_cols, parts * 256) * 256


@triton.jit
def load_keeping(row_ptr, cols, n_cols):
    """Return columns of a row in fp32, 0 past its end; they stay in the cache, as they are read again."""
    values = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
    return values.to(tl.float32)


@triton.jit
def load_last(row_ptr, cols, n_cols):
    """Return the same where nothing reads them again."""
    values = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
    return values.to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. Blocks of a long row are taken from its end, so that
    the second loop begins with what the first one has read last.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    eps = tl.cast(eps, tl.float32)  # torch.compile passes it as fp64
    if N_COLS <= BLOCK:
        x = load_last(x_row, lanes, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x) / N_COLS + eps)
        store(y_row, lanes, N_COLS, x * rstd * load_keeping(weight_ptr, lanes, N_COLS))
    else:
        BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
        squares = 0.0
        for block in range(BLOCKS):
            x = load_keeping(x_row, (BLOCKS - 1 - block) * BLOCK + lanes, N_COLS)
            squares += tl.sum(x * x)
        rstd = tl.rsqrt(squares / N_COLS + eps)
        for block in range(BLOCKS):
            cols = block * BLOCK + lanes
            y = load_last(x_row, cols, N_COLS) * rstd * load_keeping(weight_ptr, cols, N_COLS)
            store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=even_width(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
