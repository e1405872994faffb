# labs/lab4_production_slice/softmax.py | wrong everywhere | In softmax_kernel, `total = tl.sum(sums, axis=0)` adds the sums of the lanes although each is relative to its own lane's maximum: for a row of one block it is simply N_COLS. So y = exp(x - top) / total is too small and rows sum to less than 1, in fused_softmax_forward and fused_softmax (y, and the dx computed from it), in nearly every case (right only for one column, or where all lanes have the same maximum); fused_softmax_backward itself is right. Should be `tl.sum(sums * tl.exp(peaks - top), axis=0)`.
"""Softmax with a running maximum and sum in each lane, its gradient, and the differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)) for the row of this program.

    Lane k of a block sees the columns k, k + BLOCK, k + 2 * BLOCK, ... No reduction over lanes takes place
    before the loop has ended.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    peaks = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        higher = tl.maximum(peaks, x)
        sums = sums * tl.exp(peaks - higher) + tl.exp(x - higher)
        peaks = higher
    top = tl.max(peaks, axis=0)
    total = tl.sum(sums, axis=0)

    share = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        store(y_row, start + lanes, N_COLS, tl.exp(x - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax of each row of x, (n_rows, n_cols); the result goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) for the row of this program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        terms += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    products = tl.sum(terms, axis=0)

    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
