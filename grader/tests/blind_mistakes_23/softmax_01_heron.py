# labs/lab4_production_slice/softmax.py | wrong everywhere | In gradient_kernel the stored value is `y * dy - inner`: the sum over the row is not multiplied by y. It should be `y * (dy - inner)`. fused_softmax_backward and the gradient of fused_softmax are wrong for every row of more than one column; fused_softmax_forward is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)

# The tuner chooses the width of a block as well as the warps.
SHAPES = [
    triton.Config({"BLOCK": width}, num_warps=warps)
    for width, warps in ((1024, 2), (2048, 4), (4096, 4), (8192, 8), (16384, 16))
]


@triton.autotune(configs=SHAPES, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Program i has row i. The first block starts top and total, the others are folded into them."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = load(x_row, lanes, N_COLS, -float("inf"))
    # A first block of nothing but -inf still needs a finite number to subtract.
    top = tl.maximum(tl.max(x, axis=0), LOWEST)
    total = tl.sum(tl.exp(x - top), axis=0)
    for start in range(BLOCK, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols)
    return out


@triton.autotune(configs=SHAPES, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    # One partial sum for each lane; they are added up once, behind the loop.
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        partial += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    inner = tl.sum(partial, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        # A product and a difference: the compiler makes one fma of it.
        store(dx_row, cols, N_COLS, y * dy - inner)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols)
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
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
