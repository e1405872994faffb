# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm: the autotuner chooses the width of a block, and the second sweep runs from the end of the row to its start."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

WIDTHS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
    triton.Config({"BLOCK": 16384}, num_warps=16),
]


@triton.jit
def fetch(ptrs, keep):
    """fp32, and 0 where nothing is to be read."""
    return tl.load(ptrs, mask=keep, other=0.0).to(tl.float32)


@triton.autotune(configs=WIDTHS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x * rstd * weight; one program for each row."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_at = x_ptr + row * stride_x + lane
    y_at = y_ptr + row * stride_y + lane
    w_at = weight_ptr + lane

    # All blocks but the last are whole. The last one is read once, and kept.
    END: tl.constexpr = (BLOCKS - 1) * BLOCK
    ending = lane < N_COLS - END
    last = fetch(x_at + END, ending)
    power = last * last
    for k in range(0, BLOCKS - 1):
        x = tl.load(x_at + k * BLOCK).to(tl.float32)
        power += x * x
    rstd = tl.rsqrt(tl.sum(power, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    y = last * rstd * fetch(w_at + END, ending)
    tl.store(y_at + END, y.to(y_ptr.dtype.element_ty), mask=ending)
    for k in range(0, BLOCKS - 1):
        at = (BLOCKS - 2 - k) * BLOCK
        y = tl.load(x_at + at).to(tl.float32) * rstd * tl.load(w_at + at).to(tl.float32)
        tl.store(y_at + at, y.to(y_ptr.dtype.element_ty))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    result = x.new_empty(x.shape) if out is None else out
    launch = on(rms_norm_kernel, x)[(x.shape[0],)]
    launch(x, weight, result, x.stride(0), result.stride(0), eps, N_COLS=x.shape[1])
    return result


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
