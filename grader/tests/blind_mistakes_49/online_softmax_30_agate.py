# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: two-dimensional tiles of up to 32 short rows a program, sizes and warps by `triton.heuristics`, `tl.reduce` with own combine functions, exp2.
"""Softmax over rows of any length and its gradient, on tiles of one or several rows."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def load_tile(ptr, rows, cols, n_rows, n_cols, stride, filler):
    """A tile as fp32; lanes outside of the matrix hold filler."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=filler).to(tl.float32)


@triton.jit
def store_tile(ptr, value, rows, cols, n_rows, n_cols, stride):
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], value.to(ptr.dtype.element_ty), mask=inside)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 8192),
        "ROWS": lambda args: min(max(2048 // triton.next_power_of_2(args["n_cols"]), 1), 32),
        "num_warps": lambda args: 8 if args["n_cols"] > 4096 else 4,
    }
)
@triton.jit
def forward_tiles(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Program i has the rows from i * ROWS on; every row has a maximum and a sum of its own."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.full((ROWS,), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = load_tile(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
        new_top = tl.maximum(top, tl.reduce(x, 1, larger))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        weight = tl.exp2((x - shift[:, None]) * LOG2E)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.reduce(weight, 1, plus)
        top = new_top
    for start in range(0, n_cols, BLOCK):
        x = load_tile(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
        y = tl.exp2((x - top[:, None]) * LOG2E) / total[:, None]
        store_tile(y_ptr, y, rows, start + lanes, n_rows, n_cols, stride_y)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 8192),
        "ROWS": lambda args: min(max(2048 // triton.next_power_of_2(args["n_cols"]), 1), 32),
        "num_warps": lambda args: 16 if args["n_cols"] > 4096 else 8,
    }
)
@triton.jit
def backward_tiles(
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
):
    """dx = y * (dy - sum of y * dy over the row), for ROWS rows at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)
    inner = tl.full((ROWS,), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = load_tile(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
        inner += tl.reduce(dy * y, 1, plus)
    for start in range(0, n_cols, BLOCK):
        dy = load_tile(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
        store_tile(dx_ptr, y * (dy - inner[:, None]), rows, start + lanes, n_rows, n_cols, stride_dx)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    forward_tiles[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    backward_tiles[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is kept for the gradient."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
