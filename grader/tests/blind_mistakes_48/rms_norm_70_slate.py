# labs/lab4_production_slice/rms_norm.py | contract | Where no `out` is given, `rms_norm_forward` allocates by `new_rows`, `torch.empty_strided((n_rows, n_cols), (pitch, 1), ...)` with pitch rounded up to 16 bytes: the result is not contiguous, and the README promises a new contiguous tensor. It should be `torch.empty(x.shape, dtype=x.dtype, device=x.device)`. The numbers are right; it shows without `out` in more than one row where n_cols is no multiple of 4 (fp32) or 8 (fp16, bf16).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

WIDE_STORE = 16  # bytes of the widest store of a thread


@triton.jit
def columns(row_starts, cols, n_cols, exists):
    """A tile of fp32: columns `cols` of rows that exist, and 0 elsewhere."""
    return tl.load(row_starts + cols, mask=exists & (cols < n_cols), other=0.0).to(tl.float32)


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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes ROWS rows side by side."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    exists = rows < n_rows
    x_starts, y_starts = x_ptr + rows * stride_x, y_ptr + rows * stride_y
    squares = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = columns(x_starts, start + tl.arange(0, BLOCK)[None, :], N_COLS, exists)
        squares += tl.sum(x * x, axis=1, keep_dims=True)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = columns(x_starts, cols, N_COLS, exists) * rstd * weight
        tl.store(y_starts + cols, y.to(y_ptr.dtype.element_ty), mask=exists & (cols < N_COLS))


def new_rows(x):
    """A matrix like x, each row of which begins where a wide store may begin."""
    n_rows, n_cols = x.shape
    step = WIDE_STORE // x.element_size()
    pitch = triton.cdiv(n_cols, step) * step
    return torch.empty_strided((n_rows, n_cols), (pitch, 1), dtype=x.dtype, device=x.device)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols)."""
    out = new_rows(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    together = min(16, max(1, 1024 // block))
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, together),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, ROWS=together
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
