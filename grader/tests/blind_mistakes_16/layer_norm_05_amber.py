# labs/lab4_production_slice/layer_norm.py | contract | layer_norm_forward allocates its result by torch.empty_strided(x.shape, x.stride(), ...): without `out`, and where rows of x have gaps between them, the numbers are right but the returned tensor is not contiguous. It should be a new contiguous tensor, as by torch.empty_like(x).
"""LayerNorm of the rows of a matrix."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def fetch(row_ptr, cols, N_COLS: tl.constexpr):
    """Columns of a row as fp32, zero past its end."""
    return tl.load(row_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.range(0, N_COLS, BLOCK):
        acc += fetch(x_row, k + offs, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    var = 0.0
    for k in tl.range(0, N_COLS, BLOCK):
        delta = fetch(x_row, k + offs, N_COLS) - mean
        delta = tl.where(k + offs < N_COLS, delta, 0.0)
        var += tl.sum(delta * delta, axis=0)
    var = var / N_COLS
    return mean, tl.rsqrt(var + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    X, W, B, Y, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row per program."""
    pid = tl.program_id(0).to(tl.int64)
    X += pid * stride_x
    Y += pid * stride_y
    mean, rstd = mean_and_rstd(X, eps, N_COLS, BLOCK)
    for k in tl.range(0, N_COLS, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        x_hat = (fetch(X, cols, N_COLS) - mean) * rstd
        y = x_hat * fetch(W, cols, N_COLS) + fetch(B, cols, N_COLS)
        tl.store(Y + cols, y.to(Y.dtype.element_ty), mask=cols < N_COLS)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
