# labs/lab4_production_slice/softmax.py | honest | 2-D tiles of several short rows with own load and store helpers, sums of products kept as a block.
"""Lab 4, softmax: helpers for one block, 2-D tiles of a few rows while rows are short."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def fetch(ptr, rows, cols, stride, n_rows, N_COLS: tl.constexpr, OTHER: tl.constexpr):
    inside = (rows < n_rows) & (cols < N_COLS)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=OTHER).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, stride, n_rows, N_COLS: tl.constexpr, values):
    inside = (rows < n_rows) & (cols < N_COLS)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    lanes = tl.arange(0, BLOCK)[None, :]
    top = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = fetch(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=1)[:, None])
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=1)[:, None]
        top = higher
    for start in range(0, N_COLS, BLOCK):
        x = fetch(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS, float("-inf"))
        put(y_ptr, rows, start + lanes, stride_y, n_rows, N_COLS, tl.exp(x - top) / total)


def tile_of(n_rows, n_cols):
    block = block_of(n_cols)
    return block, max(1, min(1024 // block, triton.next_power_of_2(n_rows)))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block, tile_rows = tile_of(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, tile_rows),)
    on(softmax_kernel, x)[grid](x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=tile_rows)
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    lanes = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        dy = fetch(dy_ptr, rows, start + lanes, stride_dy, n_rows, N_COLS, 0.0)
        y = fetch(y_ptr, rows, start + lanes, stride_y, n_rows, N_COLS, 0.0)
        products += dy * y
    s = tl.sum(products, axis=1)[:, None]
    for start in range(0, N_COLS, BLOCK):
        dy = fetch(dy_ptr, rows, start + lanes, stride_dy, n_rows, N_COLS, 0.0)
        y = fetch(y_ptr, rows, start + lanes, stride_y, n_rows, N_COLS, 0.0)
        put(dx_ptr, rows, start + lanes, stride_dx, n_rows, N_COLS, y * (dy - s))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block, tile_rows = tile_of(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, tile_rows),)
    on(gradient_kernel, y)[grid](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=tile_rows
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
