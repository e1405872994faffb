# labs/lab4_production_slice/softmax.py | two mistakes | (1) softmax_kernel: `total * tl.exp(top - higher) + part`: part is relative to the block's own maximum and lacks the factor exp(local - higher), so rows of more than one block are wrong when a later block does not raise the maximum. (2) fused_softmax_backward passes out.stride(0) as stride_y and y.stride(0) as stride_dx (swapped): wrong or out of bounds where the strides of y and out differ.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
CONFIGS = [
    triton.Config({"BLOCK": 1024}, num_warps=4),
    triton.Config({"BLOCK": 2048}, num_warps=4),
    triton.Config({"BLOCK": 4096}, num_warps=8),
]


@triton.jit
def block_statistics(x):
    """Largest number of a block, and the sum of the exponentials relative to it."""
    local = tl.maximum(tl.max(x, axis=0), LOWEST)  # finite, also for a block of -inf
    return local, tl.sum(tl.exp(x - local), axis=0)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = softmax(x); program i computes row i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    # the first block needs no merging
    x = load(x_row, tl.arange(0, BLOCK), N_COLS, -float("inf"))
    top, total = block_statistics(x)
    for start in range(BLOCK, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        local, part = block_statistics(x)
        higher = tl.maximum(top, local)
        total = total * tl.exp(top - higher) + part
        top = higher

    scale = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) * scale)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out`, where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size(0), x.size(1)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols)
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        products += tl.sum(y * dy, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.size(0), dy.size(1)
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), out.stride(0), y.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        result = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), result)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
