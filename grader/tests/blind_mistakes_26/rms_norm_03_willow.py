# labs/lab4_production_slice/rms_norm.py | contract | rms_norm_forward, `torch.empty_strided(x.size(), x.stride(), ...)`: without `out` the new result takes over the row stride of x, so for an x with gaps between its rows it is not contiguous; the README asks for "new contiguous tensors". All numbers are right. It shows only where no `out` is given and the rows of x do not touch; it should be torch.empty_like(x) or x.new_empty(x.shape).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_root(squares, eps, N_COLS: tl.constexpr):
    """Return 1 / sqrt(squares / N_COLS + eps) in fp32."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    first = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        # The whole row at once: it stays in registers.
        values = load(x_row, first, N_COLS)
        scale = inverse_root(tl.sum(values * values, axis=0), eps, N_COLS)
        store(y_row, first, N_COLS, values * scale * load(weight_ptr, first, N_COLS))
    else:
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            part = load(x_row, start + first, N_COLS)
            squares += tl.sum(part * part, axis=0)
        factor = inverse_root(squares, eps, N_COLS)
        for start in range(0, N_COLS, BLOCK):
            cols = start + first
            normed = load(x_row, cols, N_COLS) * factor
            store(y_row, cols, N_COLS, normed * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    if out is None:
        out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
