# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) eps is added to the sum of squares and then divided by N_COLS with it, it must be added to the variance; shows with eps = 1, small variances and in fp32; (2) the launch passes x.stride(0) as the row stride of y too, it must be out.stride(0); shows when out and x have different row strides
"""LayerNorm with block pointers instead of masks."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return mean and 1 / standard deviation of the row that begins at x_row."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        centred = tl.where(cols < N_COLS, x - mean, 0.0)
        squares += centred * centred
    variance = (tl.sum(squares, axis=0) + tl.cast(eps, tl.float32)) / N_COLS
    return mean, 1.0 / tl.sqrt(variance)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalise row `program_id(0)`; four block pointers walk along the columns together."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    x_block = tl.make_block_ptr(
        base=x_row, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    w_block = tl.make_block_ptr(
        base=weight_ptr, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    b_block = tl.make_block_ptr(
        base=bias_ptr, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(N_COLS,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        w = tl.load(w_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        b = tl.load(b_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        w_block = tl.advance(w_block, (BLOCK,))
        b_block = tl.advance(b_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm over the columns of x, with weight and bias; `out` is filled if given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    stride = x.stride(0)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, stride, stride, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
