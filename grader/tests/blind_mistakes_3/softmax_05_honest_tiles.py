# labs/lab4_production_slice/softmax.py | honest | Short rows go several to a program as a 2-D tile, a constexpr count of rows; long rows keep a maximum and a sum for each lane, joined once at the end, with exp2 and the factor log2(e) applied to differences.
"""Softmax by tiles of ROWS x BLOCK: many short rows in a program, one long row otherwise."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)


def rows_of(block: int) -> int:
    """Rows of a tile: about 2048 numbers for a program."""
    return max(1, 2048 // block)


@triton.jit
def tile_at(ptr, rows, cols, stride, n_rows, N_COLS: tl.constexpr, other):
    inside = (rows < n_rows) & (cols < N_COLS)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    if N_COLS <= BLOCK:
        x = tile_at(x_ptr, rows, lane, stride_x, n_rows, N_COLS, -float("inf"))
        # a row past the end is all -inf; LOWEST in the maximum keeps its differences from being NaN
        top = tl.maximum(tl.max(x, axis=1, keep_dims=True), LOWEST)
        e = tl.exp2((x - top) * LOG2E)
        total = tl.maximum(tl.sum(e, axis=1, keep_dims=True), 1e-30)
        y = e / total
        tl.store(y_ptr + rows * stride_y + lane, y.to(y_ptr.dtype.element_ty), mask=(rows < n_rows) & (lane < N_COLS))
    else:
        m = tl.full((ROWS, BLOCK), LOWEST, tl.float32)
        s = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = tile_at(x_ptr, rows, start + lane, stride_x, n_rows, N_COLS, -float("inf"))
            m_new = tl.maximum(m, x)
            s = s * tl.exp2((m - m_new) * LOG2E) + tl.exp2((x - m_new) * LOG2E)
            m = m_new
        top = tl.max(m, axis=1, keep_dims=True)
        total = tl.sum(s * tl.exp2((m - top) * LOG2E), axis=1, keep_dims=True)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lane
            x = tile_at(x_ptr, rows, cols, stride_x, n_rows, N_COLS, -float("inf"))
            y = tl.exp2((x - top) * LOG2E) / total
            tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < n_rows) & (cols < N_COLS))


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    ROWS: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        dy = tile_at(dy_ptr, rows, start + lane, stride_dy, n_rows, N_COLS, 0.0)
        products += dy * tile_at(y_ptr, rows, start + lane, stride_y, n_rows, N_COLS, 0.0)
    dot = tl.sum(products, axis=1, keep_dims=True)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        dy = tile_at(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS, 0.0)
        y = tile_at(y_ptr, rows, cols, stride_y, n_rows, N_COLS, 0.0)
        dx = y * (dy - dot)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=(rows < n_rows) & (cols < N_COLS))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax of each row of x, into out where it is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    per_program = rows_of(block)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, per_program),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=per_program
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """dx = y * (dy - sum(y * dy)) for each row."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)
    per_program = rows_of(block)
    on(gradient_kernel, dy)[(triton.cdiv(n_rows, per_program),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=per_program
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
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
