# labs/lab4_production_slice/softmax.py | two mistakes | (1) softmax_kernel: lanes past the end load FAR = -10000 instead of -inf, so in rows that do not fill their last block and lie below about -10000 the maximum is -10000 and y is 0 or too small. (2) gradient_kernel, last loop: range(1, blocks) should be range(1, blocks + 1); the first block of dx is never stored in rows of more than 2048 columns.
"""Softmax, forward and backward, in blocks of at most 2048 columns."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
FAR = tl.constexpr(-10000.0)  # for lanes past the end of a row
BLOCK_MAX = 2048


def columns_at_a_time(n_cols: int) -> int:
    """A power of two that holds the row, or BLOCK_MAX."""
    return min(BLOCK_MAX, triton.next_power_of_2(n_cols))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Online softmax. The first block gives maximum and sum to start from, the others are folded in."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = load(x_row, lanes, N_COLS, FAR)
    top = tl.maximum(tl.max(x, axis=0), LOWEST)  # finite, even if the whole block is -inf
    total = tl.sum(tl.exp(x - top), axis=0)
    for start in range(BLOCK, N_COLS, BLOCK):
        x = load(x_row, lanes + start, N_COLS, FAR)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher

    for start in range(0, N_COLS, BLOCK):
        cols = lanes + start
        x = load(x_row, cols, N_COLS, FAR)
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax of each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    options = {"N_COLS": n_cols, "BLOCK": columns_at_a_time(n_cols)}
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), **options)
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)).

    A short row stays in registers. A long row is read forwards for the sum and backwards for dx, because
    its end is still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    if N_COLS <= BLOCK:
        y = load(y_row, lanes, N_COLS)
        dy = load(dy_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        blocks: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
        partial = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, blocks):
            cols = lanes + k * BLOCK
            partial += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
        products = tl.sum(partial, axis=0)

        # k is the number of the block, counted from the end of the row
        for k in range(1, blocks):
            cols = lanes + (blocks - k) * BLOCK
            y = load(y_row, cols, N_COLS)
            dy = load(dy_row, cols, N_COLS)
            store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of each row."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    options = {"N_COLS": n_cols, "BLOCK": columns_at_a_time(n_cols)}
    strides = [t.stride(0) for t in (dy, y, out)]
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, **options)
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
        """Return y for x."""
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
