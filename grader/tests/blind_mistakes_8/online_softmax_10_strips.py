# labs/lab2_online_softmax/online_softmax.py | corner | In the first loop of forward_strip `peak = higher` stands before the line of mass, so the old sum is multiplied by exp(peak_new - base) = 1 in place of exp(peak_old - base); the assignment must come last. Shows in rows longer than WIDEST = 1024 columns whose maximum is raised by a later tile.
"""Row softmax, several rows to a program: a program walks over its strip of rows in 2-D tiles."""

import torch
import triton
import triton.language as tl

STRIP = 4  # rows of a program
WIDEST = 1024  # columns of a tile


@triton.jit
def forward_strip(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    src = x_ptr + rows[:, None] * stride_x + lanes[None, :]
    dst = y_ptr + rows[:, None] * stride_y + lanes[None, :]
    peak = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((ROWS,), dtype=tl.float32)
    for lo in range(0, n_cols, COLS):
        ok = (rows[:, None] < n_rows) & (lanes[None, :] < n_cols - lo)
        tile = tl.load(src + lo, mask=ok, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(tile, axis=1))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        peak = higher
        mass = mass * tl.exp(peak - base) + tl.sum(tl.exp(tile - base[:, None]), axis=1)
    # strips may hang over the last row: those rows are never stored
    for lo in range(0, n_cols, COLS):
        ok = (rows[:, None] < n_rows) & (lanes[None, :] < n_cols - lo)
        tile = tl.load(src + lo, mask=ok, other=0.0).to(tl.float32)
        prob = tl.exp(tile - peak[:, None]) / mass[:, None]
        tl.store(dst + lo, prob.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def backward_strip(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    dy_at = dy_ptr + rows[:, None] * stride_dy + lanes[None, :]
    y_at = y_ptr + rows[:, None] * stride_y + lanes[None, :]
    dx_at = dx_ptr + rows[:, None] * stride_dx + lanes[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for lo in range(0, n_cols, COLS):
        ok = (rows[:, None] < n_rows) & (lanes[None, :] < n_cols - lo)
        dy = tl.load(dy_at + lo, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_at + lo, mask=ok, other=0.0).to(tl.float32)
        acc += dy * y
    dot = tl.sum(acc, axis=1)
    for lo in range(0, n_cols, COLS):
        ok = (rows[:, None] < n_rows) & (lanes[None, :] < n_cols - lo)
        dy = tl.load(dy_at + lo, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_at + lo, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_at + lo, (y * (dy - dot[:, None])).to(dx_ptr.dtype.element_ty), mask=ok)


def tile_width(n_cols: int) -> int:
    return min(WIDEST, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x; into `out`, if it is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    forward_strip[(triton.cdiv(n_rows, STRIP),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=STRIP, COLS=tile_width(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx = y * (dy - <y, dy>) for each row; into `out`, if it is given."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    backward_strip[(triton.cdiv(n_rows, STRIP),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=STRIP, COLS=tile_width(n_cols)
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
