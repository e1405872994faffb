# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) rows of y are addressed with the stride of x, they must have out.stride(0): wrong where the row strides of x and out differ; (2) eps is added to the root, it must be under it: wrong where eps is not small (1) or the row is small
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Row i is done by program i."""
    begin = tl.program_id(0).to(tl.int64) * stride
    x_ptr += begin
    y_ptr += begin
    c = tl.arange(0, BLOCK)

    ss = 0.0
    for k in range(0, N_COLS, BLOCK):
        v = load(x_ptr, k + c, N_COLS)
        ss += tl.sum(v * v, axis=0)
    rms = tl.sqrt(ss / N_COLS) + tl.cast(eps, tl.float32)

    for k in range(0, N_COLS, BLOCK):
        v = load(x_ptr, k + c, N_COLS) / rms
        store(y_ptr, k + c, N_COLS, v * load(w_ptr, k + c, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / rms(x) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
