# labs/lab4_production_slice/softmax.py | two mistakes | (1) In `join`, `(total + tl.sum(tl.exp(x - higher), axis=0)) * tl.exp(top - higher)` rescales the new block as well; it should be `total * tl.exp(top - higher) + tl.sum(...)`. Shows in rows longer than one block (over 16384 columns) where a later block raises the maximum, as ascending rows or 40000 columns, or a first block of -inf alone. (2) In `softmax_kernel`, `y_row = y_ptr + row * stride_y` multiplies an int32 row number (`row = tl.program_id(axis=0)`), where x has `row.to(tl.int64)`; shows where offsets in the result go beyond 2^31 elements, as for an `out` with rows very far apart.
"""Softmax: rows of one block stay in registers, longer ones are read twice; and the gradient."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def join(top, total, x):
    """Return maximum and sum of the exponentials, after the numbers of x have joined."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    return higher, (total + tl.sum(tl.exp(x - higher), axis=0)) * tl.exp(top - higher)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    y_row = y_ptr + row * stride_y
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, -float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, powers / tl.sum(powers, axis=0))
    else:
        # From -inf, a block of -inf alone would give -inf - -inf, which is NaN.
        first = load(x_row, lanes, N_COLS, -float("inf"))
        top = tl.maximum(tl.max(first, axis=0), LOWEST)
        total = tl.sum(tl.exp(first - top), axis=0)
        for start in range(BLOCK, N_COLS, BLOCK):
            top, total = join(top, total, load(x_row, start + lanes, N_COLS, -float("inf")))
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, -float("inf"))
            store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    if N_COLS <= BLOCK:
        y = load(y_row, lanes, N_COLS)
        dy = load(dy_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
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
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
