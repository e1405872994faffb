# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax by tiles: several short rows, or one long one, belong to a program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
TILE = 2048  # elements of a tile of short rows
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def fold(m, d, x):
    """Maximum and sum of each row of a tile, after one more tile x; both are (rows, 1)."""
    top = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
    shift = tl.where(top == -float("inf"), 0.0, top)
    terms = tl.exp2((x - shift) * LOG2E)
    total = d * tl.exp2((m - shift) * LOG2E) + tl.sum(terms, axis=1, keep_dims=True)
    return top, total


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """Softmax of ROWS rows. Where a row is one block, it stays in registers and is read once."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros([ROWS, 1], tl.float32)

    if ONE_BLOCK:
        inside = (rows < n_rows) & (lanes < n_cols)
        x = tl.load(x_rows + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x)
        # A row behind the last one has neither maximum nor sum; it is not stored.
        m = tl.where(m == -float("inf"), 0.0, m)
        y = tl.exp2((x - m) * LOG2E) / tl.maximum(d, 1.0)
        tl.store(y_rows + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = (rows < n_rows) & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
            m, d = fold(m, d, x)
        m = tl.where(m == -float("inf"), 0.0, m)
        d = tl.maximum(d, 1.0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = (rows < n_rows) & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / d
            tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) of ROWS rows."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    if ONE_BLOCK:
        inside = (rows < n_rows) & (lanes < n_cols)
        dy = tl.load(dy_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=1, keep_dims=True))
        tl.store(dx_rows + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = tl.zeros([ROWS, 1], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = (rows < n_rows) & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=1, keep_dims=True)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = (rows < n_rows) & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile(n_cols: int, widest: int) -> dict:
    """The tile of a program for rows of n_cols columns, in powers of two."""
    block = clamp(triton.next_power_of_2(n_cols), 16, widest)
    rows = clamp(TILE // block, 1, 16)
    return {
        "ROWS": rows,
        "BLOCK": block,
        "ONE_BLOCK": n_cols <= block,
        "num_warps": clamp(rows * block // 512, 1, 8),
    }


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    meta = tile(n_cols, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, meta["ROWS"]),)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **meta)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    meta = tile(n_cols, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, meta["ROWS"]),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **meta
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
