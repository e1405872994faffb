# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) the block pointer pads with 0, and the differences x - mean of the lanes past the end, -mean each, are squared and added in mean_and_rstd; must be 0 there (tl.where). Shows where n_cols is no multiple of BLOCK and the mean is not 0. (2) the pointer of y has `strides=(stride, 1)`, the row stride of x; must be that of out. Shows where out has another row stride than x.
"""LayerNorm with block pointers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def part_of(base, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """A pointer to the first block of a vector."""
    return tl.make_block_ptr(
        base, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.jit
def read(pointer):
    """The block as fp32, 0 past the end."""
    return tl.load(pointer, boundary_check=(0,), padding_option="zero").to(tl.float32)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps)."""
    x_block = part_of(x_row, N_COLS, BLOCK)
    total = 0.0
    for _ in range(0, N_COLS, BLOCK):
        total += tl.sum(read(x_block), axis=0)
        x_block = tl.advance(x_block, (BLOCK,))
    mean = total / N_COLS

    x_block = part_of(x_row, N_COLS, BLOCK)
    total = 0.0
    for _ in range(0, N_COLS, BLOCK):
        difference = read(x_block) - mean
        total += tl.sum(difference * difference, axis=0)
        x_block = tl.advance(x_block, (BLOCK,))
    return mean, tl.rsqrt(total / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, n_rows, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row for each program."""
    row = tl.program_id(axis=0)
    x_row = x_ptr + row.to(tl.int64) * stride
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    x_block = part_of(x_row, N_COLS, BLOCK)
    weight_block = part_of(weight_ptr, N_COLS, BLOCK)
    bias_block = part_of(bias_ptr, N_COLS, BLOCK)
    y_block = tl.make_block_ptr(
        y_ptr, shape=(n_rows, N_COLS), strides=(stride, 1), offsets=(row, 0), block_shape=(1, BLOCK), order=(1, 0)
    )
    for _ in range(0, N_COLS, BLOCK):
        y = (read(x_block) - mean) * rstd * read(weight_block) + read(bias_block)
        tl.store(y_block, y[None, :].to(y_ptr.dtype.element_ty), boundary_check=(0, 1))
        x_block = tl.advance(x_block, (BLOCK,))
        weight_block = tl.advance(weight_block, (BLOCK,))
        bias_block = tl.advance(bias_block, (BLOCK,))
        y_block = tl.advance(y_block, (0, BLOCK))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, n_rows, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward, for torch.compile."""
    return layer_norm_forward(x, weight, bias, eps=eps)
