# labs/lab2_online_softmax/online_softmax.py | right | Unusual: persistent programs over two-dimensional tiles (ROWS x BLOCK, sizes from triton.heuristics) with one online maximum for each row of the tile, exp2 with log2(e), a reciprocal, and lanes without a row that recompute the last row without a store; the gradient uses the same tiles.
"""Softmax of tiles of rows with persistent programs, the gradient on the same tiles, and autograd."""

import torch
import triton
import triton.language as tl

PROGRAMS = 2112  # 16 for each multiprocessor of an H200
TILE = 4096  # elements that a program holds at a time
LOG2E = tl.constexpr(1.4426950408889634)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), TILE),
        "ROWS": lambda args: min(TILE // args["BLOCK"], 16),
    }
)
@triton.jit
def tiled_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """Program p takes the tiles p, p + programs, ...; a tile is ROWS whole rows, BLOCK columns at a time."""
    for tile in tl.range(tl.program_id(axis=0), tl.cdiv(n_rows, ROWS), tl.num_programs(axis=0)):
        rows = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        owned = (rows < n_rows)[:, None]
        # The last tile may have fewer rows; the others of its lanes compute the last row again, and store nothing.
        sources = x_ptr + (tl.minimum(rows, n_rows - 1) * stride_x)[:, None]
        targets = y_ptr + (rows * stride_y)[:, None]

        m = tl.full((ROWS,), -float("inf"), tl.float32)
        d = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = (start + tl.arange(0, BLOCK))[None, :]
            x = tl.load(sources + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=1))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            terms = tl.exp2((x - shift[:, None]) * LOG2E)
            d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(terms, axis=1)
            m = m_new

        share = (1.0 / d)[:, None]
        for start in range(0, n_cols, BLOCK):
            cols = (start + tl.arange(0, BLOCK))[None, :]
            x = tl.load(sources + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp2((x - m[:, None]) * LOG2E) * share
            tl.store(targets + cols, y.to(y_ptr.dtype.element_ty), mask=owned & (cols < n_cols))


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), TILE),
        "ROWS": lambda args: min(TILE // args["BLOCK"], 16),
    }
)
@triton.jit
def tiled_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)), on the tiles of the forward pass."""
    for tile in tl.range(tl.program_id(axis=0), tl.cdiv(n_rows, ROWS), tl.num_programs(axis=0)):
        rows = tile * ROWS + tl.arange(0, ROWS).to(tl.int64)
        owned = (rows < n_rows)[:, None]
        dy_rows = dy_ptr + (rows * stride_dy)[:, None]
        y_rows = y_ptr + (rows * stride_y)[:, None]
        dx_rows = dx_ptr + (rows * stride_dx)[:, None]

        s = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = (start + tl.arange(0, BLOCK))[None, :]
            inside = owned & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=1)

        for start in range(0, n_cols, BLOCK):
            cols = (start + tl.arange(0, BLOCK))[None, :]
            inside = owned & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s[:, None])
            tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    grid = lambda meta: (min(triton.cdiv(n_rows, meta["ROWS"]), PROGRAMS),)  # noqa: E731
    tiled_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    grid = lambda meta: (min(triton.cdiv(n_rows, meta["ROWS"]), PROGRAMS),)  # noqa: E731
    tiled_gradient_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
