# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row: each lane has a maximum and a sum of its own, and the lanes are joined at the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        raised = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - raised) + tl.exp(x - raised)
        tops = raised
    # A lane that has seen no finite number has the sum 0.
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)

    # The end of the row was read last, so it is what the cache still has.
    last = (N_COLS - 1) // BLOCK * BLOCK
    for done in range(0, N_COLS, BLOCK):
        cols = lanes + (last - done)
        x = load(x_row, cols, N_COLS, float("-inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    if out is None:
        out = torch.empty_like(x)
    width = x.shape[1]
    on(softmax_kernel, x)[(x.shape[0],)](
        x, out, x.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * dy - y * sum(y * dy) for one row."""
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
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            sums += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
        products = tl.sum(sums, axis=0)
        for start in range(0, N_COLS, BLOCK):
            y = load(y_row, start + lanes, N_COLS)
            dy = load(dy_row, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty_like(dy)
    width = dy.shape[1]
    on(gradient_kernel, dy)[(dy.shape[0],)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width)
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
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
