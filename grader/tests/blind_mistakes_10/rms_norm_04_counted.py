# labs/lab4_production_slice/rms_norm.py | contract | without out the result is allocated by `torch.empty_strided(x.shape, x.stride(), ...)`, with the row stride of x; the contract asks for a new contiguous tensor (torch.empty_like, or torch.empty of the shape). Shows only where x is padded and no out is given: the numbers are right, the layout is not.
"""RMSNorm, block by block; blocks are counted at compile time."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Row i of y from row i of x."""
    row = tl.program_id(axis=0).to(tl.int64)
    source, target = x_ptr + row * stride_x, y_ptr + row * stride_y
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    squares = 0.0
    for block in range(BLOCKS):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        x = load(source, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
    variance = squares / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    for block in range(BLOCKS):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        normed = load(source, cols, N_COLS) * rstd
        store(target, cols, N_COLS, normed * load(weight_ptr, cols, N_COLS))


def like(x):
    """A new tensor with the shape, the dtype and the layout of x."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
