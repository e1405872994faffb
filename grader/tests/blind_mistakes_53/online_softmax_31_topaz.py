# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In backward_kernel `dot = tl.zeros([BLOCK], tl.float32)` stands before the loop over the ROWS = 4 rows of a program; it should stand inside, for each row anew. s of the second to fourth row of a program also has the sums of the rows before it, so all rows but 0, 4, 8, ... are wrong in every matrix of more than one row.
"""Online softmax and its gradient; a program takes a few neighbouring rows, one after the other."""

import torch
import triton
import triton.language as tl

BLOCK = 4096  # columns that a program holds at a time
ROWS = 4  # rows of one program

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def fold(m, d, x):
    """The maximum and the sum, after one more block of columns."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    return m_new, d_new


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * ROWS
    for i in range(0, ROWS):
        row = first + i
        if row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(
                    x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
                )
                m, d = fold(m, d, x.to(tl.float32))
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(
                    x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first"
                )
                y = tl.exp2((x.to(tl.float32) - m) * LOG2E) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(
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
    lanes = tl.arange(0, BLOCK)
    first = tl.program_id(0).to(tl.int64) * ROWS
    dot = tl.zeros([BLOCK], tl.float32)
    for i in range(0, ROWS):
        row = first + i
        if row < n_rows:
            dy_row = dy_ptr + row * stride_dy
            y_row = y_ptr + row * stride_y
            dx_row = dx_ptr + row * stride_dx
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                mask = cols < n_cols
                dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last")
                y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last")
                dot += dy.to(tl.float32) * y.to(tl.float32)
            s = tl.sum(dot, axis=0)
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                mask = cols < n_cols
                dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first")
                y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first")
                dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
                tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def block_and_warps(n_cols: int) -> tuple:
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    return block, max(block // 512, 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the rows of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols)
    forward_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax; it goes to `out` where one is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols)
    backward_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
