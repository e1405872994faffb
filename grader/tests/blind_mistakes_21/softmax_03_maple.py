# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
PROGRAMS = 4096  # at most; with more rows than that, a program has several


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of the rows pid, pid + programs, pid + 2 * programs, ...

    Three sweeps over a row instead of the online recurrence: maximum, sum, store. For a row of one block the
    compiler merges the loads. The last sweep goes from the last block to the first, as the last one was
    touched most recently.
    """
    lane = tl.arange(0, BLOCK)
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        source = x_ptr + row * stride_x
        target = y_ptr + row * stride_y

        peak = tl.full((BLOCK,), LOWEST, tl.float32)
        for k in range(0, BLOCKS):
            peak = tl.maximum(peak, load(source, k * BLOCK + lane, N_COLS, -float("inf")))
        top = tl.max(peak, axis=0)

        mass = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, BLOCKS):
            mass += tl.exp(load(source, k * BLOCK + lane, N_COLS, -float("inf")) - top)
        total = tl.sum(mass, axis=0)

        for k in range(0, BLOCKS):
            cols = (BLOCKS - 1 - k) * BLOCK + lane
            x = load(source, cols, N_COLS, -float("inf"))
            store(target, cols, N_COLS, tl.exp(x - top) / total)
        row += tl.num_programs(axis=0)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out`, where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * dy - y * sum(y * dy); program i computes row i, the second sweep backwards."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK

    weighted = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, BLOCKS):
        cols = k * BLOCK + lane
        weighted += load(y_ptr, cols, N_COLS) * load(dy_ptr, cols, N_COLS)
    products = tl.sum(weighted, axis=0)

    for k in range(0, BLOCKS):
        cols = (BLOCKS - 1 - k) * BLOCK + lane
        change = load(dy_ptr, cols, N_COLS) - products
        store(dx_ptr, cols, N_COLS, change * load(y_ptr, cols, N_COLS))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
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
