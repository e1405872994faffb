# labs/lab4_production_slice/layer_norm.py | contract | Without out, layer_norm_forward allocates the result with the strides of x, so for rows with gaps it is not contiguous; it should be a new contiguous tensor, as of torch.empty_like(x).
"""LayerNorm with plain loads and stores."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """mean and 1 / sqrt(variance + eps) of N_COLS numbers"""
    offs = tl.arange(0, BLOCK)
    total = 0.0
    for k in range(0, N_COLS, BLOCK):
        chunk = tl.load(x_row + k + offs, mask=k + offs < N_COLS, other=0.0).to(tl.float32)
        total += tl.sum(chunk, axis=0)
    mean = total / N_COLS
    total_sq = 0.0
    for k in range(0, N_COLS, BLOCK):
        valid = k + offs < N_COLS
        chunk = tl.load(x_row + k + offs, mask=valid, other=0.0).to(tl.float32)
        chunk = tl.where(valid, chunk - mean, 0.0)
        total_sq += tl.sum(chunk * chunk, axis=0)
    return mean, 1.0 / tl.sqrt(total_sq / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr,
    y_ptr,
    weight_ptr,
    bias_ptr,
    eps,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """a row for each program"""
    pid = tl.program_id(axis=0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    mean, rstd = mean_and_rstd(x_ptr, eps, N_COLS, BLOCK)
    offs = tl.arange(0, BLOCK)
    for k in range(0, N_COLS, BLOCK):
        valid = k + offs < N_COLS
        x = tl.load(x_ptr + k + offs, mask=valid, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + k + offs, mask=valid, other=0.0).to(tl.float32)
        b = tl.load(bias_ptr + k + offs, mask=valid, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_ptr + k + offs, y.to(y_ptr.dtype.element_ty), mask=valid)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """Each row of x normalised, scaled by weight, shifted by bias."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, out, weight, bias, eps, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
