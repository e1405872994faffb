# labs/lab2_online_softmax/online_softmax.py | right | Tiles of 4 to 16 rows with a maximum and a sum for each lane, joined once at the end of a row; the fold computes a single exp2 of -abs(x - m) and chooses by tl.where which side it scales; the maximum starts at the lowest finite number of fp32, so -inf needs no case of its own.
"""Softmax with a maximum and a sum for each lane of a tile of rows, and one exp for each step of a lane."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
LANES = 1024  # columns of a tile, at most
BACKWARD_BLOCK = 16384

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def fold(m, d, x):
    """Maximum and sum of lanes after x: of exp(m - m_new) and exp(x - m_new), one is 1, and the other e."""
    e = tl.exp2(-tl.abs(x - m) * LOG2E)
    return tl.maximum(m, x), tl.where(x > m, d * e + 1.0, d + e)


@triton.jit
def lane_tile_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns the rows from i * ROWS on; lane k of each has the columns k, k + COLS, ..."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    # From a finite number on, m is finite, and x = -inf adds exp2(-inf) = 0.
    m = tl.full((ROWS, COLS), LOWEST, tl.float32)
    d = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        m, d = fold(m, d, x.to(tl.float32))

    top = tl.max(m, axis=1)[:, None]
    total = tl.sum(d * tl.exp2((m - top) * LOG2E), axis=1)[:, None]
    share = 1.0 / tl.where(rows < n_rows, total, 1.0)

    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2E) * share
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s), where s is the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and of `out` may be any number of elements apart."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = min(triton.next_power_of_2(n_cols), LANES)
    rows = min(TILE // cols, 16)
    lane_tile_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
