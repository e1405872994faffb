# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In mean_and_rstd, the second loop goes on with `ptrs` where the first loop left it, behind the row, so the variance is taken from memory after the row; `ptrs = x_row + offs` is missing before the second loop.
"""LayerNorm, walking along the row with a block of pointers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and reciprocal standard deviation of one row."""
    offs = tl.arange(0, BLOCK)
    ptrs = x_row + offs
    s = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = tl.load(ptrs, mask=offs < N_COLS - start, other=0.0).to(tl.float32)
        s += tl.sum(x, axis=0)
        ptrs += BLOCK
    mean = s / N_COLS

    q = 0.0
    for start in range(0, N_COLS, BLOCK):
        live = offs < N_COLS - start
        x = tl.load(ptrs, mask=live, other=0.0).to(tl.float32)
        diff = tl.where(live, x - mean, 0.0)
        q += tl.sum(diff * diff, axis=0)
        ptrs += BLOCK
    variance = q / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    offs = tl.arange(0, BLOCK)
    x_ptrs = x_row + offs
    y_ptrs = y_row + offs
    w_ptrs = weight_ptr + offs
    b_ptrs = bias_ptr + offs
    for start in range(0, N_COLS, BLOCK):
        live = offs < N_COLS - start
        x = tl.load(x_ptrs, mask=live, other=0.0).to(tl.float32)
        w = tl.load(w_ptrs, mask=live, other=0.0).to(tl.float32)
        b = tl.load(b_ptrs, mask=live, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=live)
        x_ptrs += BLOCK
        y_ptrs += BLOCK
        w_ptrs += BLOCK
        b_ptrs += BLOCK


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    on(layer_norm_kernel, x)[(rows,)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=cols,
        BLOCK=block_of(cols),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
