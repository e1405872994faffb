# labs/lab4_production_slice/rms_norm.py | contract | Where `out` is given the function writes the result there but ends without a return, so it gives None; it should return `out` in both cases.
"""RMSNorm with block pointers: one for the row of x, one for the weight, one for the row of y."""

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
    row = tl.program_id(axis=0).to(tl.int64)
    x_start = tl.make_block_ptr(
        base=x_ptr + row * stride_x,
        shape=(N_COLS,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    w_block = tl.make_block_ptr(
        base=weight_ptr,
        shape=(N_COLS,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(N_COLS,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    x_block = x_start
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        squares += x * x
        x_block = tl.advance(x_block, (BLOCK,))
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    x_block = x_start
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        w = tl.load(w_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = x * rstd * w
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        w_block = tl.advance(w_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


def launch(x, weight, eps, y):
    """One program for each row."""
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype.
    """
    if out is None:
        y = torch.empty_like(x)
        launch(x, weight, eps, y)
        return y
    launch(x, weight, eps, out)


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
