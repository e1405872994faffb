# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) In rms_norm_kernel the weight is loaded once, before the loop that stores, as `load(weight_ptr, lanes, N_COLS)`: every block is multiplied by the weight of the first BLOCK columns. It should be loaded in the loop, at `start + lanes`. Shows in rows of more than one block (more than 8192 columns). (2) In rms_norm_forward the result is allocated by `torch.empty(x.shape, device=x.device)`, which is fp32 whatever x is; it should have dtype=x.dtype. Shows for fp16 and bf16 where no `out` is given, so in rms_norm_op as well.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MOST_COLS = 8192


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    The squares are added lane by lane, and reduced once.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    power = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        power += x * x
    rstd = tl.rsqrt(tl.sum(power, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    weight = load(weight_ptr, lanes, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        store(y_row, start + lanes, N_COLS, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](
        x,
        weight,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(MOST_COLS, block_of(n_cols)),
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
