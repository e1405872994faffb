# labs/lab4_production_slice/softmax.py | wrong everywhere | `TO_BASE_2 = tl.constexpr(0.6931471805599453)` (ln 2), used in `exp_of`: exp(d) is exp2(d * log2(e)), so it should be 1.4426950408889634. The result is a softmax of x * 0.48 in `fused_softmax_forward` and `fused_softmax` (y and with it dx); only rows of one column, of equal values, or with differences so large that every exp is 0 or 1 are right. `fused_softmax_backward` is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
# The hardware has exp2 only, so exp is exp2 of a scaled argument.
TO_BASE_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def exp_of(difference):
    """exp of differences from the maximum, which are at most 0."""
    return tl.exp2(difference * TO_BASE_2)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    stride_x,
    stride_y,
    n_rows,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program has ROWS rows, which are more than one where rows are short, and takes
    BLOCK columns of them at a time.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    top = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        total = total * exp_of(top - higher) + tl.sum(exp_of(x - higher), axis=1, keep_dims=True)
        top = higher
    # Rows past the last one have a total of 0, and are not stored.
    inverse = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=float("-inf")).to(tl.float32)
        y = exp_of(x - top) * inverse
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 8192)
    rows = min(max(1024 // block, 1), 16)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, out, x.stride(0), out.stride(0), n_rows, N_COLS=n_cols, ROWS=rows, BLOCK=block
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
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
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
        BLOCK=min(block_of(n_cols), 4096),
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
