# lab4_production_slice/softmax.py | honest | 2-D tiles: a program has several short rows at a time (row masks, own loads), goes over the blocks from the last to the first, uses exp2 with log2(e), multiplies by 1 / total; backward adds up lanes and reduces once | meets the whole contract
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2E = tl.constexpr(1.4426950408889634)
SIZES = [triton.Config({"TILE": 4096}, num_warps=w) for w in (4, 8)]


def rows_per_program(named_args):
    """Short rows share a program."""
    return max(1, min(16, named_args["TILE"] // named_args["BLOCK"]))


@triton.jit
def fetch(ptr, offsets, mask, other):
    return tl.load(ptr + offsets, mask=mask, other=other).to(tl.float32)


@triton.autotune(configs=SIZES, key=["N_COLS"])
@triton.heuristics({"R": rows_per_program})
@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    R: tl.constexpr,
):
    """R rows at a time, blocks from right to left."""
    rows = tl.program_id(axis=0).to(tl.int64) * R + tl.arange(0, R)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK

    top = tl.full((R,), LOWEST, dtype=tl.float32)
    total = tl.zeros((R,), dtype=tl.float32)
    for start in range(LAST, -1, -BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = fetch(x_ptr, rows * stride_x + cols, inside, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=1))
        part = tl.sum(tl.exp2((x - higher[:, None]) * LOG2E), axis=1)
        total = total * tl.exp2((top - higher) * LOG2E) + part
        top = higher

    # rows past the end have total 0
    factor = 1.0 / tl.where(total > 0.0, total, 1.0)
    for start in range(LAST, -1, -BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = fetch(x_ptr, rows * stride_x + cols, inside, float("-inf"))
        y = tl.exp2((x - top[:, None]) * LOG2E) * factor[:, None]
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)

    def grid(meta):
        return (triton.cdiv(n_rows, rows_per_program({"TILE": meta["TILE"], "BLOCK": block})),)

    on(softmax_kernel, x)[grid](x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
    return out


@triton.autotune(configs=SIZES, key=["N_COLS"])
@triton.heuristics({"R": rows_per_program})
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    R: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)), R rows at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * R + tl.arange(0, R)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    products = tl.zeros((R, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        y = fetch(y_ptr, rows * stride_y + cols, inside, 0.0)
        products += y * fetch(dy_ptr, rows * stride_dy + cols, inside, 0.0)
    dot = tl.sum(products, axis=1, keep_dims=True)
    for start in range(LAST, -1, -BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        y = fetch(y_ptr, rows * stride_y + cols, inside, 0.0)
        dx = y * (fetch(dy_ptr, rows * stride_dy + cols, inside, 0.0) - dot)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)

    def grid(meta):
        return (triton.cdiv(n_rows, rows_per_program({"TILE": meta["TILE"], "BLOCK": block})),)

    on(gradient_kernel, dy)[grid](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block
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
