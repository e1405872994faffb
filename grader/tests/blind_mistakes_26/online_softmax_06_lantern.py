# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel, the partial last block behind the loop does `d += tl.sum(tl.exp(x - higher), axis=0)` and so does not bring the sum of the whole blocks to the new maximum. Shows in softmax_forward and softmax only where n_cols > FORWARD_BLOCK (8192), n_cols is no multiple of it, some value of an earlier block is finite, and the row's maximum lies in that last partial block (surely for ascending rows of 20011, by chance in 2 x 40000 or 100 x 20011): d is too large there, and the whole row too small. Should be `d = d * tl.exp(m - higher) + tl.sum(tl.exp(x - higher), axis=0)`.
"""Online softmax with whole blocks first, without masks, and then what is left of the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d for row i of program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + i * stride_x
    y_row_ptr = y_ptr + i * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK  # columns in whole blocks
    rest = whole + lanes

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes, eviction_policy="evict_last").to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = higher
    if whole < n_cols:
        # Behind this block the whole row has been seen, so `higher` is finite.
        x = tl.load(x_row_ptr + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        d += tl.sum(tl.exp(x - higher), axis=0)
        m = higher

    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), eviction_policy="evict_first")
    if whole < n_cols:
        x = tl.load(x_row_ptr + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + rest, y.to(y_ptr.dtype.element_ty), mask=rest < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :]."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + i * stride_dy
    y_row_ptr = y_ptr + i * stride_y
    dx_row_ptr = dx_ptr + i * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    inside = rest < n_cols

    s = 0.0
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row_ptr + start + lanes).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    if whole < n_cols:
        dy = tl.load(dy_row_ptr + rest, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + rest, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row_ptr + start + lanes).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes).to(tl.float32)
        tl.store(dx_row_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))
    if whole < n_cols:
        dy = tl.load(dy_row_ptr + rest, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + rest, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + rest, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_for(n_cols: int, widest: int) -> int:
    return clamp(triton.next_power_of_2(n_cols), 1, widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = block_for(n_cols, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = block_for(n_cols, BACKWARD_BLOCK)
    warps = clamp(block // 512, 2, 8)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        out = softmax_forward(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
