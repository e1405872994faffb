# labs/lab4_production_slice/softmax.py | contract | FusedSoftmax.backward hands dy.contiguous() to backward_op, which writes dx over its argument (out=grad). contiguous() returns dy itself where dy is contiguous already, so the incoming gradient of autograd is overwritten: "Inputs are not changed" is broken in every case with a contiguous dy (not for an expanded, transposed or spread dy, which is copied). y and dx themselves are right. dx should go to a new tensor.
"""Softmax of rows: the forward pass, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def logits(x_row, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK numbers of the row from column `start` on; -inf past the end."""
    return load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = logits(x_row, start, N_COLS, BLOCK)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        x = logits(x_row, start, N_COLS, BLOCK)
        store(y_row, start + tl.arange(0, BLOCK), N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def warps_for(block: int) -> int:
    """Warps of a program with rows in blocks of this width."""
    if block <= 2048:
        return 4
    return 8 if block <= 8192 else 16


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y; it goes to `out` where one is given."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    block = block_of(n_cols)
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0),
        N_COLS=n_cols, BLOCK=block, num_warps=warps_for(block),
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=("grad",))
def backward_op(grad: torch.Tensor, y: torch.Tensor) -> None:
    """fused_softmax_backward, likewise."""
    fused_softmax_backward(grad, y, out=grad)


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
        grad = dy.contiguous()
        backward_op(grad, y)
        return grad


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
