"""Softmax over rows of any length: forward, backward, and both as a differentiable function."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

WIDEST = 16384  # columns of a block: the values of a longer row do not all stay in registers
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8, 16, 32)]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y,
                   BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """y = exp(x - m) / sum(exp(x - m)), m the maximum of the row; program i owns row i.

    x and y are (n_rows, n_cols) of one dtype, columns contiguous; stride_x and stride_y are elements from one
    row to the next. A row has BLOCKS blocks of BLOCK columns.
    """
    # BEGIN TODO 1: maximum and sum of the row, first for each lane (about 12 lines)
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    # Each lane keeps a maximum and a sum of its own: no reduction before the row is at its end.
    m = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    d = tl.where(m == -float("inf"), 0.0, 1.0)
    for start in range(BLOCK, BLOCKS * BLOCK, BLOCK):
        offs = start + cols
        x = tl.load(x_row + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)  # -inf - -inf would be NaN
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = higher
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    # END TODO 1
    # BEGIN TODO 2: normalise and store the row, block by block (about 5 lines)
    for i in range(BLOCKS):
        offs, inside = i * BLOCK + cols, i * BLOCK + cols < n_cols
        x = tl.load(x_row + offs, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + offs, y.to(y_ptr.dtype.element_ty), mask=inside)
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx,
                    BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """dx = y * (dy - sum(y * dy)); program i owns row i of the three, (n_rows, n_cols) of one dtype."""
    # BEGIN TODO 3: the sum over the row, then dx block by block (about 14 lines)
    row, cols = tl.program_id(axis=0).to(tl.int64), tl.arange(0, BLOCK)
    dy_row, y_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(BLOCKS):
        offs, inside = i * BLOCK + cols, i * BLOCK + cols < n_cols
        dy = tl.load(dy_row + offs, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=inside, other=0.0).to(tl.float32)
        products += y * dy
    dot = tl.sum(products, axis=0)
    for i in range(BLOCKS):
        offs, inside = i * BLOCK + cols, i * BLOCK + cols < n_cols
        dy = tl.load(dy_row + offs, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_ptr + row * stride_dx + offs, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    # END TODO 3


def blocks(n_cols: int) -> dict[str, int]:
    """The width of a block, a power of two, and how many a row of n_cols columns has."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "BLOCKS": triton.cdiv(n_cols, block)}


def on(kernel, traced: bool):
    """The kernel, or what torch.compile can see of it, for the body of an operator."""
    return wrap_triton(kernel) if traced else kernel


def fused_softmax_forward(x, *, out=None, traced=False) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. Each
    row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 4: launch one program a row (about 2 lines)
    launch = on(softmax_kernel, traced)[(x.shape[0],)]
    launch(x, out, x.shape[1], x.stride(0), out.stride(0), **blocks(x.shape[1]))
    # END TODO 4
    return out


def fused_softmax_backward(dy, y, *, out=None, traced=False) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the result y of the forward pass, both
    (n_rows, n_cols) of one dtype; written to `out` where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 3 lines)
    launch = on(gradient_kernel, traced)[(dy.shape[0],)]
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch(dy, y, out, dy.shape[1], *strides, **blocks(dy.shape[1]))
    # END TODO 5
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x, traced=True)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y, traced=True)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        # BEGIN TODO 6: the result, and what the gradient needs (about 3 lines)
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y
        # END TODO 6

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        # BEGIN TODO 7: the gradient (about 1 line)
        return backward_op(dy.contiguous(), *ctx.saved_tensors)
        # END TODO 7


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, for use under torch.compile, too."""
    return FusedSoftmax.apply(x)
