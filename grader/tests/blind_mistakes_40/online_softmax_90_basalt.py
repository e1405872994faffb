# labs/lab2_online_softmax/online_softmax.py | error | In `tile_softmax_kernel`, `tl.max(x, axis=1, keepdims=True)` and `tl.sum(weights, axis=1, keepdims=True)`: the argument is called `keep_dims` in Triton. The forward kernel does not compile, in all cases.
"""Online softmax on tiles of rows and columns, in base 2, with its gradient and an autograd function."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK_ROWS
    rows = first + tl.arange(0, BLOCK_ROWS)[:, None]
    lanes = tl.arange(0, BLOCK_COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    peak = tl.full((BLOCK_ROWS, 1), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(x, axis=1, keepdims=True))
        base = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        weights = tl.exp2((x - base) * LOG2E)
        total = total * tl.exp2((peak - base) * LOG2E) + tl.sum(weights, axis=1, keepdims=True)
        peak = new_peak

    # Rows that do not exist have a total of 0 and are not stored.
    peak = tl.where(rows < n_rows, peak, 0.0)
    inverse = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - peak) * LOG2E) * inverse
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block_cols = min(triton.next_power_of_2(n_cols), TILE)
    block_rows = min(TILE // block_cols, triton.next_power_of_2(n_rows))
    tile_softmax_kernel[(triton.cdiv(n_rows, block_rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK_ROWS=block_rows,
        BLOCK_COLS=block_cols,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    row_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
