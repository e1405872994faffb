# labs/lab4_production_slice/rms_norm.py | two mistakes | `mean_sq = tl.sum(acc, axis=0) / BLOCK` divides by the width of the block instead of N_COLS, wrong where the row is not exactly one block. `w = load(W, lane, N_COLS)` before the second loop takes the weights of the first block for all blocks instead of load(W, cols, N_COLS) in the loop, wrong for rows of more than 16384 columns.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_fwd(X, W, Y, sx, sy, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    X += pid * sx
    Y += pid * sy
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, N_COLS, BLOCK):
        x = load(X, k + lane, N_COLS)
        acc += x * x
    mean_sq = tl.sum(acc, axis=0) / BLOCK
    r = tl.rsqrt(mean_sq + tl.cast(eps, tl.float32))

    w = load(W, lane, N_COLS)
    for k in range(0, N_COLS, BLOCK):
        cols = k + lane
        store(Y, cols, N_COLS, load(X, cols, N_COLS) * r * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    y = out if out is not None else torch.empty_like(x)
    m, n = x.shape
    on(rms_fwd, x)[(m,)](x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n, BLOCK=block_of(n))
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
