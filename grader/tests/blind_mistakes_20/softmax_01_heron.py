# labs/lab4_production_slice/softmax.py | wrong everywhere | In share(), the first row of a program is program_id * num_programs; it should be program_id * chunk (the rows per program). Most rows are never computed, forward and backward, unless there is one row or chunk happens to equal the number of programs.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

At most PROGRAMS programs are launched. Each has some neighbouring rows, and works through them one after the other.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 1024


def split(n_rows: int):
    """Return how many rows a program has, and how many programs that makes."""
    chunk = triton.cdiv(n_rows, PROGRAMS)
    return chunk, triton.cdiv(n_rows, chunk)


@triton.jit
def share(n_rows, chunk):
    """Return the first row of this program, and the row behind its last one."""
    first = tl.program_id(axis=0) * tl.num_programs(axis=0)
    return first, tl.minimum(first + chunk, n_rows)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, chunk, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = exp(x - top) / total for the rows of this program; each lane has a maximum and a sum of its own."""
    lanes = tl.arange(0, BLOCK)
    first, behind = share(n_rows, chunk)
    for row in range(first, behind):
        x_row = x_ptr + tl.cast(row, tl.int64) * stride_x
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        # finite, so that a lane with nothing but -inf gives exp(-inf) = 0
        tops = tl.full((BLOCK,), -3.4028234663852886e38, tl.float32)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, -float("inf"))
            higher = tl.maximum(tops, x)
            sums = sums * tl.exp(tops - higher) + tl.exp(x - higher)
            tops = higher
        top = tl.max(tops, axis=0)
        total = tl.sum(sums * tl.exp(tops - top), axis=0)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, -float("inf"))
            store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), into `out` where it is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    chunk, programs = split(n_rows)
    on(softmax_kernel, x)[(programs,)](
        x, out, n_rows, chunk, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    chunk,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) for the rows of this program."""
    lanes = tl.arange(0, BLOCK)
    first, behind = share(n_rows, chunk)
    for row in range(first, behind):
        dy_row = dy_ptr + tl.cast(row, tl.int64) * stride_dy
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        dx_row = dx_ptr + tl.cast(row, tl.int64) * stride_dx
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            sums += load(dy_row, start + lanes, N_COLS) * load(y_row, start + lanes, N_COLS)
        products = tl.sum(sums, axis=0)
        for start in range(0, N_COLS, BLOCK):
            dy = load(dy_row, start + lanes, N_COLS)
            y = load(y_row, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y, into `out` where it is given."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    chunk, programs = split(n_rows)
    on(gradient_kernel, dy)[(programs,)](
        dy,
        y,
        out,
        n_rows,
        chunk,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
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
