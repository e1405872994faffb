# labs/lab4_production_slice/softmax.py | error | The first loop of softmax_kernel subtracts the vector `higher` of shape (ROWS,) from the tile x of shape (ROWS, BLOCK) without a new axis: `tl.exp(x - higher)` does not compile (incompatible dimensions), unless BLOCK is 1 or 4, where it gives wrong sums. It should be tl.exp(x - higher[:, None]).
"""Softmax over rows of any length, four rows for each program of the forward pass."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
ROWS_PER_PROGRAM = 4
TILE_COLS = 2048


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i computes rows i * ROWS to (i + 1) * ROWS - 1."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    top = tl.full((ROWS,), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows[:, None] < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=1)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows[:, None] < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    on(softmax_kernel, x)[grid](
        x,
        out,
        n_rows,
        x.stride(0),
        out.stride(0),
        N_COLS=n_cols,
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=min(block_of(n_cols), TILE_COLS),
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        parts += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(parts, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy,
        y,
        out,
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
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
