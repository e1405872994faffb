# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

Every lane runs an online softmax of its own over the columns that it sees; the lanes are joined once, behind the
loop. The grid has a fixed size at most, and a program takes every so many rows. Second sweeps go from the end of
the row to its start, since the end was loaded last.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # at most


@triton.jit
def lane_statistics(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Maximum of the columns of each lane, and their sum of exp(x - that maximum).

    A lane that has seen no finite number has the lowest fp32 number and 0.
    """
    tops = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        raised = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - raised) + tl.exp(x - raised)
        tops = raised
    return tops, totals


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows first, first + programs, first + 2 * programs, ... of the softmax of x."""
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK  # first column of the last block
    first = tl.program_id(axis=0).to(tl.int64)
    for ahead in range(0, n_rows - first, tl.num_programs(axis=0)):
        row = first + ahead
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        tops, totals = lane_statistics(x_row, N_COLS, BLOCK)
        top = tl.max(tops, axis=0)
        total = tl.sum(totals * tl.exp(tops - top), axis=0)
        for back in range(0, N_COLS, BLOCK):
            cols = LAST - back + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS, -float("inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)), for the same rows as in softmax_kernel."""
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    first = tl.program_id(axis=0).to(tl.int64)
    for ahead in range(0, n_rows - first, tl.num_programs(axis=0)):
        row = first + ahead
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        lanes = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            lanes += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
        products = tl.sum(lanes, axis=0)
        for back in range(0, N_COLS, BLOCK):
            cols = LAST - back + tl.arange(0, BLOCK)
            dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
            store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
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
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
