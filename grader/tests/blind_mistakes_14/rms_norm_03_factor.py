# labs/lab4_production_slice/rms_norm.py | corner | `1.0 / (tl.sqrt(mean_square) + tl.cast(eps, tl.float32))` adds eps outside of the root; it should be 1.0 / tl.sqrt(mean_square + eps), so y is wrong where eps matters: a large eps, or rows of small values.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the factor that normalises a row, in fp32."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        lanes += x * x
    mean_square = tl.sum(lanes, axis=0) / N_COLS
    return 1.0 / (tl.sqrt(mean_square) + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i reads row i of x twice (once where it fits into BLOCK) and writes row i of y."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    factor = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        normed = load(x_row, cols, N_COLS) * factor
        store(y_row, cols, N_COLS, normed * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.size(0), x.size(1)
    launch = on(rms_norm_kernel, x)[(rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
