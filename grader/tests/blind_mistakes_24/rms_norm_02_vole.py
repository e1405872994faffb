# labs/lab4_production_slice/rms_norm.py | error | rms_norm_op: the parameter `eps=1e-6` has no annotation, so triton_op cannot infer a schema and raises ValueError while the file is imported ("Parameter eps must have a type annotation"); it should be `eps: float`.
"""RMSNorm over rows of any length; a row of one block stays in registers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def root(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean square + eps), in fp32 also where eps comes as fp64."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        rstd = root(tl.sum(x * x, axis=0), eps, N_COLS)
        store(y_row, lanes, N_COLS, x * rstd * load(weight_ptr, lanes, N_COLS))
    else:
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            squares += tl.sum(x * x, axis=0)
        rstd = root(squares, eps, N_COLS)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            w = load(weight_ptr, start + lanes, N_COLS)
            store(y_row, start + lanes, N_COLS, x * rstd * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps=1e-6) -> torch.Tensor:
    """rms_norm_forward as an operator, with the same default for eps."""
    return rms_norm_forward(x, weight, eps=eps)
