# labs/lab4_production_slice/rms_norm.py | corner | In rms_norm_kernel rstd is `tl.rsqrt((squares + eps) / N_COLS)`, so eps is divided by the number of columns. It should be `tl.rsqrt(squares / N_COLS + eps)`. Wrong where eps counts: a large eps such as 1, or rows of small numbers; eps = 0 is right.
"""RMSNorm, two rows to a program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

EACH = 2  # rows of a program


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
    EACH: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight for EACH rows, one after the other."""
    first = tl.program_id(axis=0).to(tl.int64) * EACH
    lanes = tl.arange(0, BLOCK)
    small = tl.cast(eps, tl.float32)
    for k in range(0, EACH):
        row = first + k
        # The last program may have fewer rows.
        if row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            squares = 0.0
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                squares += tl.sum(x * x, axis=0)
            rstd = tl.rsqrt((squares + small) / N_COLS)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                n = load(x_row, cols, N_COLS) * rstd
                store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs = triton.cdiv(n_rows, EACH)
    on(rms_norm_kernel, x)[(programs,)](
        x,
        weight,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
        EACH=EACH,
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
