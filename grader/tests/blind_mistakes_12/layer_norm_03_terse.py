# labs/lab4_production_slice/layer_norm.py | corner | variance is the mean of x * (x - mean), equal on paper, but the rounding of the mean is multiplied by x; it must be the mean of (x - mean) * (x - mean); shows for values far from 0 (fp32 rows around 10000)
"""LayerNorm."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of a row, fp32."""
    total = 0.0
    for c in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, c + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    total = 0.0
    for c in range(0, N_COLS, BLOCK):
        x = load(x_row, c + tl.arange(0, BLOCK), N_COLS)
        total += tl.sum(x * (x - mean), axis=0)
    var = tl.maximum(total / N_COLS, 0.0)
    return mean, tl.rsqrt(var + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, sx, sy, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """One row a program."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx
    y_ptr += row * sy
    mean, rstd = mean_and_rstd(x_ptr, eps, N_COLS, BLOCK)
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        n = (load(x_ptr, cols, N_COLS) - mean) * rstd
        store(y_ptr, cols, N_COLS, n * load(w_ptr, cols, N_COLS) + load(b_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of the rows of x, into `out` if given."""
    out = torch.empty_like(x) if out is None else out
    M, N = x.shape
    on(layer_norm_kernel, x)[(M,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
