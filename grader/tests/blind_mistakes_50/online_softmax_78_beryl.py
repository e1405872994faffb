# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_backward_kernel`, `keep = y != 0.0` (both branches) as the mask of the store should be `cols < n_cols`, that is `k * BLOCK + lanes < n_cols` and `start + lanes < n_cols`: where y is exactly 0, dx = 0 is never stored. It shows where `out` is given and y holds zeros (fp16 with long rows, such as 40000 columns, whose small y round to 0; y of a masked row); without `out` the new matrix is zeros, so it is right.
"""Online softmax and its gradient, a block of columns at a time, with the blocks unrolled where they are few."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i by program i: first the maximum m and the sum d relative to m, then the quotients."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x32 = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x32, axis=0))
        # A block of -inf alone: any finite number will do, since the sum stays 0.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x32 - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def both(dy_ptr, y_ptr, cols, n_cols):
    """A block of dy and one of y, in fp32."""
    inside = cols < n_cols
    dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    return dy, y


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Row i by program i; BLOCKS is the number of blocks if the loops are to be unrolled, else 0."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    if BLOCKS:
        for k in tl.static_range(BLOCKS):
            dy, y = both(dy_ptr, y_ptr, k * BLOCK + lanes, n_cols)
            s += tl.sum(dy * y, axis=0)
        for k in tl.static_range(BLOCKS):
            dy, y = both(dy_ptr, y_ptr, k * BLOCK + lanes, n_cols)
            keep = y != 0.0
            tl.store(dx_ptr + k * BLOCK + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)
    else:
        for start in range(0, n_cols, BLOCK):
            dy, y = both(dy_ptr, y_ptr, start + lanes, n_cols)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            dy, y = both(dy_ptr, y_ptr, start + lanes, n_cols)
            keep = y != 0.0
            tl.store(dx_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.zeros(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    blocks = triton.cdiv(n_cols, block)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        BLOCKS=blocks if blocks <= 4 else 0,
        num_warps=min(max(block // 512, 4), 16),
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
