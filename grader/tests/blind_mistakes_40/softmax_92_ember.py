# labs/lab4_production_slice/softmax.py | right | Two-dimensional tiles: short rows share a program, with top and total as columns (keep_dims); exp2 with log2(e) after the maximum is subtracted; the second sweep goes from the last block back to the first.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
TILE = 1024  # elements of a program at least: short rows share one


@triton.jit
def take(ptr, rows, cols, n_rows, n_cols, stride, other):
    """A tile of a matrix in fp32, `other` outside of it."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, n_rows, n_cols, stride, values):
    """Store a tile of a matrix, rounded to its dtype."""
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = exp(x - top) / total; program i computes the ROWS rows from i * ROWS on.

    top and total are columns, one number for each row of the tile. The second sweep goes back from the last
    block to the first: what was read last is still in the cache.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    top = tl.full((ROWS, 1), LOWEST, tl.float32)
    total = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = take(x_ptr, rows, start + lanes, n_rows, N_COLS, stride_x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        terms = tl.exp2((x - higher) * LOG2E)
        total = total * tl.exp2((top - higher) * LOG2E) + tl.sum(terms, axis=1, keep_dims=True)
        top = higher

    # A row past the end of the matrix has no terms; what its 0 gives here is never stored.
    scale = 1.0 / total
    for back in range(0, N_COLS, BLOCK):
        cols = (N_COLS - 1) // BLOCK * BLOCK - back + lanes
        x = take(x_ptr, rows, cols, n_rows, N_COLS, stride_x, float("-inf"))
        y = tl.exp2((x - top) * LOG2E) * scale
        put(y_ptr, rows, cols, n_rows, N_COLS, stride_y, y)


def tile_of(n_cols):
    """Rows and columns of the tile of a program."""
    block = block_of(n_cols)
    return max(1, TILE // block), block


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, BLOCK=block
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - sum(y * dy)); program i computes the ROWS rows from i * ROWS on."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        y = take(y_ptr, rows, start + lanes, n_rows, N_COLS, stride_y, 0.0)
        dy = take(dy_ptr, rows, start + lanes, n_rows, N_COLS, stride_dy, 0.0)
        products += tl.sum(y * dy, axis=1, keep_dims=True)
    for start in range(0, N_COLS, BLOCK):
        y = take(y_ptr, rows, start + lanes, n_rows, N_COLS, stride_y, 0.0)
        dy = take(dy_ptr, rows, start + lanes, n_rows, N_COLS, stride_dy, 0.0)
        put(dx_ptr, rows, start + lanes, n_rows, N_COLS, stride_dx, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols)
    on(gradient_kernel, dy)[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, BLOCK=block
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
