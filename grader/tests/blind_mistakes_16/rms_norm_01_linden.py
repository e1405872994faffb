# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel, last loop: the normalised row is multiplied by 1 + weight (a zero-centred weight, as in Gemma), `n * (1.0 + w)`; it should be `n * w`.
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
    """Program i normalises and scales row i. Block pointers step through the row BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_block = tl.make_block_ptr(
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

    squares = 0.0
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        squares += tl.sum(x * x, axis=0)
        x_block = tl.advance(x_block, (BLOCK,))

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    x_block = tl.make_block_ptr(
        base=x_ptr + row * stride_x,
        shape=(N_COLS,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        w = tl.load(w_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        n = x * rstd
        y = n * (1.0 + w)
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        w_block = tl.advance(w_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, scaled by weight; it goes to `out`, where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
