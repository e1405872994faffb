# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel, first loop: x is squared in its own dtype and converted afterwards, `(x * x).to(tl.float32)`; in fp16 the square of |x| > 255 is inf, and the whole row becomes 0. It should convert first, `x = ....to(tl.float32)`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        col = start + lane
        x = tl.load(x_row + col, mask=col < N_COLS, other=0.0)
        acc += (x * x).to(tl.float32)
    mean_square = tl.sum(acc, axis=0) / N_COLS
    scale = 1.0 / tl.sqrt(mean_square + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        col = start + lane
        x = tl.load(x_row + col, mask=col < N_COLS, other=0.0, eviction_policy="evict_first").to(tl.float32)
        w = tl.load(weight_ptr + col, mask=col < N_COLS, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = x * scale * w
        tl.store(y_row + col, y.to(y_ptr.dtype.element_ty), mask=col < N_COLS)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype.
    """
    if out is None:
        out = torch.empty_like(x)
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
