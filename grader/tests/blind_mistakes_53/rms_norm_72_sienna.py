# labs/lab4_production_slice/rms_norm.py | corner | In `rms_norm_kernel`, the last store uses `load(weight_ptr, lanes, REST)`, the weights of the first REST columns; it should be `load(weight_ptr + WHOLE, lanes, REST)`. Shows only in rows longer than one block (16384) that are not whole blocks: the columns from the last multiple of 16384 on are wrong (16385, 24576, 40000 columns).
"""RMSNorm over rows of any length, whole blocks without a mask, and the same as an operator."""

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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. The first WHOLE columns are full blocks, which need
    no mask; the REST columns behind them are one more block, with a mask.
    """
    WHOLE: tl.constexpr = N_COLS // BLOCK * BLOCK
    REST: tl.constexpr = N_COLS - WHOLE
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    squares = 0.0
    for start in range(0, WHOLE, BLOCK):
        block = tl.load(x_row + start + lanes).to(tl.float32)
        squares += tl.sum(block * block, axis=0)
    if REST > 0:
        last = load(x_row + WHOLE, lanes, REST)
        squares += tl.sum(last * last, axis=0)

    # torch.compile passes eps as fp64.
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, WHOLE, BLOCK):
        n = tl.load(x_row + start + lanes).to(tl.float32) * rstd
        y = n * tl.load(weight_ptr + start + lanes).to(tl.float32)
        tl.store(y_row + start + lanes, y.to(y_row.dtype.element_ty))
    if REST > 0:
        n_last = load(x_row + WHOLE, lanes, REST) * rstd
        store(y_row + WHOLE, lanes, REST, n_last * load(weight_ptr, lanes, REST))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
