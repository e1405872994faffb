# labs/lab4_production_slice/rms_norm.py | two mistakes | rms_norm_kernel: (1) `squares` is set to zeros once before the loop over the RUN rows of a program, so the second to fourth row also have the squares of the rows before; it should be set to zeros for each row. (2) rstd is `rsqrt((sum + eps) / N_COLS)`: eps is divided by N_COLS too, which shows with large eps or small x; it should be `rsqrt(sum / N_COLS + eps)`.
"""RMSNorm over rows of any length; a program computes RUN rows, one after the other."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

RUN = tl.constexpr(4)


def candidates():
    """Return the widths and numbers of warps that the autotuner tries."""
    sizes = [(1024, 4), (2048, 4), (4096, 8), (8192, 16)]
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in sizes]


@triton.autotune(configs=candidates(), key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight for rows i * RUN to i * RUN + RUN - 1 in program i."""
    first = tl.program_id(axis=0).to(tl.int64) * RUN
    lanes = tl.arange(0, BLOCK)
    small = tl.cast(eps, tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(0, RUN):
        row = first + i
        if row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            for start in range(0, N_COLS, BLOCK):
                x = load(x_row, start + lanes, N_COLS)
                squares += x * x
            rstd = tl.rsqrt((tl.sum(squares, axis=0) + small) / N_COLS)
            for start in range(0, N_COLS, BLOCK):
                cols = start + lanes
                # the weight is in the cache after the first row of the run
                y = load(x_row, cols, N_COLS) * rstd * load(weight_ptr, cols, N_COLS)
                store(y_row, cols, N_COLS, y)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, RUN),)
    on(rms_norm_kernel, x)[grid](x, weight, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
