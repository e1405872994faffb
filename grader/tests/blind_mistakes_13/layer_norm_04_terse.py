# labs/lab4_production_slice/layer_norm.py | corner | In layer_norm_kernel `pid = tl.program_id(0)` stays int32, so pid * stride_x and pid * stride_y overflow where a row begins beyond 2^31 elements; it should have been `tl.program_id(0).to(tl.int64)`.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lane = tl.arange(0, BLOCK)
    s = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, N_COLS, BLOCK):
        s += load(x_row, i + lane, N_COLS)
    mu = tl.sum(s, 0) / N_COLS
    q = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, N_COLS, BLOCK):
        d = tl.where(i + lane < N_COLS, load(x_row, i + lane, N_COLS) - mu, 0.0)
        q += d * d
    return mu, tl.rsqrt(tl.sum(q, 0) / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    mu, rstd = mean_and_rstd(x_ptr, eps, N_COLS, BLOCK)
    lane = tl.arange(0, BLOCK)
    for i in range(0, N_COLS, BLOCK):
        c = i + lane
        n = (load(x_ptr, c, N_COLS) - mu) * rstd
        store(y_ptr, c, N_COLS, n * load(w_ptr, c, N_COLS) + load(b_ptr, c, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(layer_norm_kernel, x)[(rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
