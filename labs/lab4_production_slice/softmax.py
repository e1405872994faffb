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
    tl.static_assert(False, "TODO 1: maximum and sum of the row, first for each lane")
    # END TODO 1
    # BEGIN TODO 2: normalise and store the row, block by block (about 5 lines)
    tl.static_assert(False, "TODO 2: normalise and store the row, block by block")
    # END TODO 2


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx,
                    BLOCK: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    """dx = y * (dy - sum(y * dy)); program i owns row i of the three, (n_rows, n_cols) of one dtype."""
    # BEGIN TODO 3: the sum over the row, then dx block by block (about 14 lines)
    tl.static_assert(False, "TODO 3: the sum over the row, then dx block by block")
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
    raise NotImplementedError("TODO 4: launch one program a row")
    # END TODO 4
    return out


def fused_softmax_backward(dy, y, *, out=None, traced=False) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the result y of the forward pass, both
    (n_rows, n_cols) of one dtype; written to `out` where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 3 lines)
    raise NotImplementedError("TODO 5: launch one program a row")
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
        raise NotImplementedError("TODO 6: the result, and what the gradient needs")
        # END TODO 6

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        # BEGIN TODO 7: the gradient (about 1 line)
        raise NotImplementedError("TODO 7: the gradient")
        # END TODO 7


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, for use under torch.compile, too."""
    return FusedSoftmax.apply(x)
