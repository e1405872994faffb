# labs/lab2_online_softmax/online_softmax.py | two mistakes | First: `softmax_forward` chooses `short_rows_kernel` by `if x.is_contiguous() and n_cols <= SHORT`, but that kernel stores with offsets `rows[:, None] * n_cols` too; it should also ask for `out.is_contiguous()` (or use the stride of out): wrong for a contiguous x of at most 1024 columns and more than one row with a padded or far `out` (such as 3 x 1009). Second: in `long_row_kernel`, `last = n_cols // BLOCK * BLOCK` should be `(n_cols - 1) // BLOCK * BLOCK`: where n_cols is a multiple of the block (4096, 24576, 131072, or padded rows of a power of two), the way down begins one block too far and the first block of each row is never written.
"""Softmax by two kernels: tiles of several short rows, and one program a row that comes back from the end."""

import torch
import triton
import triton.language as tl

SHORT = 1024  # columns of a row that goes into a tile with others
TILE = 4096  # elements of such a tile
BLOCK_COLS = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def short_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Program i owns rows i * ROWS and following, each of which is whole in the tile."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    offsets = rows[:, None] * n_cols + cols[None, :]
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=1)
    top = tl.where(top == -float("inf"), 0.0, top)  # rows behind the last one
    e = tl.exp2((x - top[:, None]) * LOG2E)
    y = e / tl.sum(e, axis=1)[:, None]
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i: maximum and sum on the way up, the result on the way down, from what is still cached."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        top = higher

    last = n_cols // BLOCK * BLOCK
    for back in range(0, n_cols, BLOCK):
        cols = last - back + lanes
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2E) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    along = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        along += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - along)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    if x.is_contiguous() and n_cols <= SHORT:
        tile_rows = min(TILE // width, triton.next_power_of_2(n_rows))
        grid = (triton.cdiv(n_rows, tile_rows),)
        short_rows_kernel[grid](x, out, n_rows, n_cols, ROWS=tile_rows, COLS=width, num_warps=4)
    else:
        block = min(width, BLOCK_COLS)
        long_row_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_COLS)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
