# labs/lab2_online_softmax/online_softmax.py | error | In the helper fold, tl.exp(x - safe) subtracts a vector of (ROWS,) from a tile of (ROWS, BLOCK); the shapes (4, BLOCK) and (1, 4) do not go together and the kernel fails. It should be x - safe[:, None].
"""Online softmax in small functions, four rows for each program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048
ROWS_PER_PROGRAM = 4


@triton.jit
def rows_of_program(n_rows, ROWS: tl.constexpr):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return rows, rows < n_rows


@triton.jit
def fetch(ptr, rows, cols, stride, inside, other):
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, stride, inside, values):
    tl.store(ptr + rows[:, None] * stride + cols[None, :], values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def fold(x, m, d):
    top = tl.maximum(m, tl.max(x, axis=1))
    safe = tl.where(top == -float("inf"), 0.0, top)
    d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=1)
    return top, d


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows, exists = rows_of_program(n_rows, ROWS)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        m, d = fold(fetch(x_ptr, rows, cols, stride_x, inside, -float("inf")), m, d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        x = fetch(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        put(y_ptr, rows, cols, stride_y, inside, tl.exp(x - m[:, None]) / d[:, None])


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows, exists = rows_of_program(n_rows, ROWS)
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        g = fetch(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = fetch(y_ptr, rows, cols, stride_y, inside, 0.0)
        s += tl.sum(g * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        g = fetch(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = fetch(y_ptr, rows, cols, stride_y, inside, 0.0)
        put(dx_ptr, rows, cols, stride_dx, inside, y * (g - s[:, None]))


def block_for(n_cols: int, widest: int) -> int:
    return max(16, min(triton.next_power_of_2(n_cols), widest))


def grid_for(n_rows: int) -> tuple:
    return (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[grid_for(n_rows)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=block_for(n_cols, FORWARD_BLOCK),
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[grid_for(n_rows)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=block_for(n_cols, BACKWARD_BLOCK),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
