# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the second sweep of `online_softmax_kernel`, `y = tl.exp(x - tops[None, :]) / d` shifts by the maximum of each lane; d is relative to the maximum of the row, so it should be `tl.exp(x - m) / d`. Wrong in every row of more than one column whose lanes have different maxima (in rows of up to 512 columns all y are 1 / d); lanes of a masked row that hold -inf alone give NaN.
"""Online softmax with persistent programs; a block of a row is a tile, and each of its columns has its own state."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8
TILE = 8192
LANES = 512
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, DEPTH: tl.constexpr, LANES: tl.constexpr
):
    """Program i takes the rows i, i + programs, ...; a tile has DEPTH * LANES columns of the row."""
    inner = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
        tops = tl.full([LANES], -float("inf"), tl.float32)
        sums = tl.zeros([LANES], tl.float32)
        for start in range(0, n_cols, DEPTH * LANES):
            cols = start + inner
            x = tl.load(
                x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            higher = tl.maximum(tops, tl.max(x, axis=0))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            sums = sums * tl.exp(tops - shift) + tl.sum(tl.exp(x - shift[None, :]), axis=0)
            tops = higher
        # The whole row from its lanes: m is finite, so that a lane of -inf alone adds 0.
        m = tl.max(tops, axis=0)
        d = tl.sum(sums * tl.exp(tops - m), axis=0)
        for start in range(0, n_cols, DEPTH * LANES):
            cols = start + inner
            mask = cols < n_cols
            x = tl.load(
                x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp(x - tops[None, :]) / d
            tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    inner = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + inner
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + inner
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    tile = min(triton.next_power_of_2(n_cols), TILE)
    lanes = min(tile, LANES)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0),
        DEPTH=tile // lanes, LANES=lanes, num_warps=clamp(tile // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 16),
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
