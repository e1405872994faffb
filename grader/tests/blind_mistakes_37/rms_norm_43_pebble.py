# labs/lab4_production_slice/rms_norm.py | two mistakes | both in rms_norm_kernel (in both of its branches), launched by rms_norm_forward. (1) `part = tl.sum(x * x, axis=0)` squares and adds up the loaded x in the dtype of the input, without a conversion to fp32: in fp16 a square of a number beyond 255.9, or a block whose squares add up to more than 65504 (about 16385 columns of deviation 2), is inf and the row becomes 0; very small numbers lose digits. fp32 is right, bf16 loses some digits. It should be x.to(tl.float32) before the square. (2) `tl.rsqrt((squares + eps) / N_COLS)` divides eps by the number of columns as well: it should be squares / N_COLS + eps. It shows in every dtype where eps matters beside the mean of the squares (narrow rows, eps = 1) and n_cols > 1; with eps = 0 or usual rows it does not.
"""RMSNorm over rows of any length, and the same as an operator."""

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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    eps = tl.cast(eps, tl.float32)
    lanes = tl.arange(0, BLOCK)

    if N_COLS <= BLOCK:
        # The row stays in registers.
        inside = lanes < N_COLS
        x = tl.load(x_ptr + lanes, mask=inside, other=0.0)
        part = tl.sum(x * x, axis=0)
        squares = part.to(tl.float32)
        rstd = tl.rsqrt((squares + eps) / N_COLS)
        gain = load(weight_ptr, lanes, N_COLS)
        store(y_ptr, lanes, N_COLS, x.to(tl.float32) * rstd * gain)
    else:
        squares = 0.0
        for start in range(0, N_COLS, BLOCK):
            inside = lanes < N_COLS - start
            x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0)
            part = tl.sum(x * x, axis=0)
            squares += part.to(tl.float32)
        rstd = tl.rsqrt((squares + eps) / N_COLS)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            gain = load(weight_ptr, cols, N_COLS)
            store(y_ptr, cols, N_COLS, load(x_ptr, cols, N_COLS) * rstd * gain)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    n_rows, n_cols = x.size(0), x.size(1)
    y = out
    if y is None:
        y = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    strides = x.stride(0), y.stride(0)
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, y, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
