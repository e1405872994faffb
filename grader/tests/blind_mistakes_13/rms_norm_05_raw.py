# labs/lab4_production_slice/rms_norm.py | corner | In the first loop of rms_norm_kernel `sum_sq += vals * vals` squares in the dtype of x, so in fp16 squares of values above 255 are inf and y is 0, and small squares vanish; `vals` should be converted to fp32 before it is squared, `vals = tl.load(...).to(tl.float32)`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_start = x_ptr + pid * stride_x
    y_start = y_ptr + pid * stride_y

    sum_sq = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(0, tl.cdiv(N_COLS, BLOCK)):
        idx = i * BLOCK + offs
        vals = tl.load(x_start + idx, mask=idx < N_COLS, other=0.0)
        sum_sq += vals * vals
    mean_sq = tl.sum(sum_sq, axis=0) / N_COLS
    inv = 1.0 / tl.sqrt(mean_sq + tl.cast(eps, tl.float32))

    for i in range(0, tl.cdiv(N_COLS, BLOCK)):
        idx = i * BLOCK + offs
        vals = tl.load(x_start + idx, mask=idx < N_COLS, other=0.0).to(tl.float32)
        gain = tl.load(weight_ptr + idx, mask=idx < N_COLS, other=0.0).to(tl.float32)
        res = vals * inv * gain
        tl.store(y_start + idx, res.to(y_ptr.dtype.element_ty), mask=idx < N_COLS)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape[0], x.shape[1]
    block = block_of(cols)
    kernel = on(rms_norm_kernel, x)
    kernel[(rows,)](x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
