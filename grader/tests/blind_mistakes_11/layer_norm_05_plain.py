# labs/lab4_production_slice/layer_norm.py | error | `total = 0` and `squares = 0` in mean_and_rstd begin as int32 and become fp32 in the loop; Triton does not compile a variable of a loop that changes its type (the interpreter runs it): they must begin as 0.0. Shows in every call that is compiled.
"""LayerNorm."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    # mean
    total = 0
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        total += tl.sum(x)
    mean = total / N_COLS
    # variance
    squares = 0
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        x = tl.where(cols < N_COLS, x - mean, 0.0)
        squares += tl.sum(x * x)
    variance = squares / N_COLS
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
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        x = load(x_row, cols, N_COLS)
        x_hat = (x - mean) * rstd
        store(y_row, cols, N_COLS, x_hat * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    M, N = x.shape
    on(layer_norm_kernel, x)[(M,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
