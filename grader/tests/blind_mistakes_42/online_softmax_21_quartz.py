# labs/lab2_online_softmax/online_softmax.py | two mistakes | In `online_softmax_kernel`: (1) `y_rows = y_ptr + (rows * stride_y)[:, None]` multiplies int32 row numbers; it should be `rows.to(tl.int64) * stride_y`, as for x. Shows where rows of out lie beyond 2^31 elements (with a row stride that itself fits int32), also for short rows. (2) `shift = tl.where(top == -float("inf"), 0.0, top)` takes the maximum of the block; it should be that of all blocks so far, `tl.maximum(m, top)`, which m becomes. d is relative to the last block's maximum: wrong for rows longer than 4096 columns whose maximum is not in the last block, right for ascending rows and for rows of one block.
"""Online softmax on tiles of rows and columns, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile: one wide row, or several narrow ones
MOST_ROWS = 16


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y[i, :] = exp(x[i, :] - m) / d for the ROWS rows of a program, BLOCK columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + (rows.to(tl.int64) * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    row_mask = (rows < n_rows)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_rows + cols,
            mask=row_mask & (cols < n_cols),
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        top = tl.max(x, axis=1)
        # -inf - -inf is NaN; for a block of -inf alone 0 is as good a shift as any.
        shift = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = tl.maximum(m, top)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = row_mask & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), TILE)
    rows = clamp(TILE // block, 1, MOST_ROWS)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(rows * block // 512, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    block = min(triton.next_power_of_2(n_cols), 16384)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
