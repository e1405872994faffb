"""Softmax over rows of any length: forward, backward, and both as a differentiable function."""

import rows
import torch
import triton
import triton.language as tl
from rows import again, columns, keep, load, store
from torch.library import triton_op

SHORT, WIDE = tl.constexpr(1024), tl.constexpr(rows.WIDEST)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.autotune(
    configs=rows.BY_LANES_OF_TWO, key=["n_cols"], prune_configs_by={"early_config_prune": rows.wide}
)
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y,
                   TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """y = exp(x - top) / sum(exp(x - top)), top the maximum of the row; program i owns row i.

    x and y are (n_rows, n_cols) of one dtype, columns contiguous; stride_x and stride_y are elements from one
    row to the next. A tile is TILE columns of the row as TILE / LANES by LANES; lane j owns column j of it.
    """
    row, cols = tl.program_id(axis=0).to(tl.int64), columns(TILE, LANES)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    if TILES == 1 and (TILE <= SHORT or TILE > WIDE):
        # BEGIN TODO 1: a row of one tile, which stays in registers (about 6 lines)
        tl.static_assert(False, "TODO 1: a row of one tile, which stays in registers")
        # END TODO 1
    else:
        # BEGIN TODO 2: maximum and sum of the row, first for each lane (about 10 lines)
        # Each lane has a maximum and a sum of its own: no thread waits for others before the end of the row.
        # The lowest number of fp32, not -inf: -inf - -inf would be NaN.
        tl.static_assert(False, "TODO 2: maximum and sum of the row, first for each lane")
        # END TODO 2
        # BEGIN TODO 3: normalise and store the row, tile by tile (about 6 lines)
        tl.static_assert(False, "TODO 3: normalise and store the row, tile by tile")
        # END TODO 3


@triton.autotune(configs=rows.BY_LANES, key=["n_cols"], prune_configs_by={"early_config_prune": rows.fitting})
@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx,
                    TILE: tl.constexpr, TILES: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """dx = y * (dy - sum(y * dy)); program i owns row i of the three, (n_rows, n_cols) of one dtype."""
    # BEGIN TODO 4: the sum over the row, then dx tile by tile (about 15 lines)
    tl.static_assert(False, "TODO 4: the sum over the row, then dx tile by tile")
    # END TODO 4


def fused_softmax_forward(x, *, out=None, traced=False) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. Each
    row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 5: launch one program a row (about 3 lines)
    raise NotImplementedError("TODO 5: launch one program a row")
    # END TODO 5
    return out


def fused_softmax_backward(dy, y, *, out=None, traced=False) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the result y of the forward pass, both
    (n_rows, n_cols) of one dtype; written to `out` where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    # BEGIN TODO 6: launch one program a row (about 3 lines)
    raise NotImplementedError("TODO 6: launch one program a row")
    # END TODO 6
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
        # BEGIN TODO 7: the result, and what the gradient needs (about 3 lines)
        raise NotImplementedError("TODO 7: the result, and what the gradient needs")
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        # BEGIN TODO 8: the gradient (about 1 line)
        raise NotImplementedError("TODO 8: the gradient")
        # END TODO 8


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, for use under torch.compile, too."""
    return FusedSoftmax.apply(x)
