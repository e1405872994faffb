# labs/lab4_production_slice/softmax.py | contract | Without `out`, fused_softmax_forward allocates its result by `torch.empty(x.shape, dtype=torch.float32, ...)`, so for fp16 and bf16 the result is fp32; it should have the dtype of x, `dtype=x.dtype`.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_of(t):
    """e to the power of t, by the power of 2 that the hardware has."""
    return tl.exp2(t * LOG2_E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * exp_of(top - higher) + tl.sum(exp_of(x - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS, -float("inf"))
        store(y_row, start + cols, N_COLS, exp_of(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, with contiguous columns; rows may lie any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
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
    """dx = y * (dy - sum(y * dy)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + cols, N_COLS)
        y = load(y_row, start + cols, N_COLS)
        products += tl.sum(y * dy, axis=0)
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + cols, N_COLS)
        y = load(y_row, start + cols, N_COLS)
        store(dx_row, start + cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
