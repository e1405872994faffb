# labs/lab4_production_slice/softmax.py | right | Two-dimensional tiles of up to 16 short rows, keep_dims reductions, exp2 with log2(e), and a second sweep that walks through the blocks backwards.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
WIDTH = 8192  # columns of a tile at most
ELEMENTS = 2048  # of a tile of several rows
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def fetch(ptr, rows, cols, stride, n_rows, n_cols, other):
    """A tile at a column of row numbers and a row of column numbers, in fp32; other outside of the matrix."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, stride, n_rows, n_cols, values):
    """Store such a tile, rounded to the dtype of the matrix."""
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """y = exp(x - top) / total for ROWS rows at a time, each with a maximum and a sum of its own.

    The second sweep goes backwards: what the first one read last is still in the cache.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    top = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for block in range(0, BLOCKS):
        x = fetch(x_ptr, rows, block * BLOCK + lanes, stride_x, n_rows, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        grown = tl.sum(tl.exp2((x - higher) * LOG2E), axis=1, keep_dims=True)
        total = total * tl.exp2((top - higher) * LOG2E) + grown
        top = higher
    share = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for block in range(0, BLOCKS):
        cols = (BLOCKS - 1 - block) * BLOCK + lanes
        x = fetch(x_ptr, rows, cols, stride_x, n_rows, N_COLS, -float("inf"))
        put(y_ptr, rows, cols, stride_y, n_rows, N_COLS, tl.exp2((x - top) * LOG2E) * share)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx,
    N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - sum(y * dy)) for ROWS rows at a time, also forwards and then backwards."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for block in range(0, BLOCKS):
        cols = block * BLOCK + lanes
        dy = fetch(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS, 0.0)
        y = fetch(y_ptr, rows, cols, stride_y, n_rows, N_COLS, 0.0)
        products += y * dy
    shared = tl.sum(products, axis=1, keep_dims=True)
    for block in range(0, BLOCKS):
        cols = (BLOCKS - 1 - block) * BLOCK + lanes
        dy = fetch(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS, 0.0)
        y = fetch(y_ptr, rows, cols, stride_y, n_rows, N_COLS, 0.0)
        put(dx_ptr, rows, cols, stride_dx, n_rows, N_COLS, y * (dy - shared))


def sizes_for(n_rows, n_cols):
    """The grid, and the sizes of a tile by name."""
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    together = max(1, min(16, ELEMENTS // block))
    sizes = {"N_COLS": n_cols, "ROWS": together, "BLOCK": block, "BLOCKS": triton.cdiv(n_cols, block)}
    return (triton.cdiv(n_rows, together),), sizes


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    grid, sizes = sizes_for(n_rows, n_cols)
    on(softmax_kernel, x)[grid](x, out, n_rows, x.stride(0), out.stride(0), **sizes)
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    n_rows, n_cols = y.shape
    out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype) if out is None else out
    grid, sizes = sizes_for(n_rows, n_cols)
    on(gradient_kernel, y)[grid](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), **sizes
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
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
