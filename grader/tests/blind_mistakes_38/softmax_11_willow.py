# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


def rows_of(block: int) -> int:
    """Rows of a program: short ones share it, up to 16 of them and 1024 elements."""
    return max(1, min(16, 1024 // block))


@triton.jit
def load_tile(x_ptr, rows, cols, stride_x, n_rows, n_cols):
    """Return a tile of x in fp32, and -inf where x has no such row or column."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)


@triton.jit
def store_tile(y_ptr, rows, cols, stride_y, n_rows, n_cols, values):
    """Store the elements of a tile that y has, rounded to its dtype."""
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(y_ptr + rows * stride_y + cols, values.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)) for each row; program i computes rows i * ROWS and following.

    The rows of a tile have each a maximum and a sum of their own. A tile that holds whole rows is read once.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    if N_COLS <= BLOCK:
        x = load_tile(x_ptr, rows, lanes, stride_x, n_rows, N_COLS)
        top = tl.maximum(tl.max(x, axis=1), LOWEST)
        power = tl.exp(x - top[:, None])
        y = power / tl.sum(power, axis=1)[:, None]
        store_tile(y_ptr, rows, lanes, stride_y, n_rows, N_COLS, y)
    else:
        top = tl.full((ROWS,), LOWEST, dtype=tl.float32)
        total = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS)
            higher = tl.maximum(top, tl.max(x, axis=1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
            top = higher
        for start in range(0, N_COLS, BLOCK):
            x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS)
            y = tl.exp(x - top[:, None]) / total[:, None]
            store_tile(y_ptr, rows, start + lanes, stride_y, n_rows, N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    per_program = rows_of(block)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, per_program),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=per_program, BLOCK=block
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
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
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
