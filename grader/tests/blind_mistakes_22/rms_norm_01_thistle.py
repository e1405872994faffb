# labs/lab4_production_slice/rms_norm.py | error | In rms_norm_kernel `rstd` is a vector of ROWS numbers, and x * rstd meets a (ROWS, BLOCK) tile: (1, 4) does not go together with (4, BLOCK), BLOCK at least 16. It should be rstd[:, None].
"""RMSNorm, four rows at a time: short rows would leave most of a program idle."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ROWS = tl.constexpr(4)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, n_rows, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i normalises rows 4 i to 4 i + 3."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    exists = rows[:, None] < n_rows

    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists & (cols[None, :] < N_COLS)
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=1) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists & (cols[None, :] < N_COLS)
        x = tl.load(x_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        weight = load(weight_ptr, cols, N_COLS)
        y = x * rstd * weight[None, :]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype) if out is None else out
    n_rows, n_cols = x.shape
    block = max(16, min(block_of(n_cols), 4096))
    on(rms_norm_kernel, x)[(triton.cdiv(n_rows, ROWS),)](
        x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
