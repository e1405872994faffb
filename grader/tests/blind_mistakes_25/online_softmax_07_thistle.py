# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward, `out=grad`: where the incoming gradient is contiguous, dy.contiguous() is dy itself, so dx is written over the gradient that autograd handed over. The values of dx are right, but the input dy is changed; it should call softmax_backward(grad, y) without out.
"""Softmax by rows (exp2 version) and its gradient."""

import torch
import triton
import triton.language as tl

WIDTH = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, n_blocks, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row program_id, in n_blocks blocks."""
    log2e: tl.constexpr = 1.4426950408889634
    i = tl.program_id(0).to(tl.int64)
    xs = x_ptr + i * stride_x
    ys = y_ptr + i * stride_y
    lowest: tl.constexpr = -float("inf")

    # block 0 gives the first maximum and the first sum
    j = tl.arange(0, BLOCK)
    x = tl.load(xs + j, mask=j < n_cols, other=lowest).to(tl.float32)
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp2((x - tl.where(m == lowest, 0.0, m)) * log2e), axis=0)

    # the others correct them
    for b in range(1, n_blocks):
        j = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(xs + j, mask=j < n_cols, other=lowest).to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        safe = tl.where(higher == lowest, 0.0, higher)
        d = d * tl.exp2((m - safe) * log2e) + tl.sum(tl.exp2((x - safe) * log2e), axis=0)
        m = higher

    for b in range(0, n_blocks):
        j = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(xs + j, mask=j < n_cols, other=lowest).to(tl.float32)
        p = tl.exp2((x - m) * log2e) / d
        tl.store(ys + j, p.to(y_ptr.dtype.element_ty), mask=j < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_blocks, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx of row program_id: first the whole sum, then one block of dx after the other."""
    i = tl.program_id(0).to(tl.int64)
    gs = dy_ptr + i * stride_dy
    ps = y_ptr + i * stride_y
    ds = dx_ptr + i * stride_dx

    s = 0.0
    for b in range(0, n_blocks):
        j = b * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gs + j, mask=j < n_cols, other=0.0).to(tl.float32)
        p = tl.load(ps + j, mask=j < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)

    for b in range(0, n_blocks):
        j = b * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gs + j, mask=j < n_cols, other=0.0).to(tl.float32)
        p = tl.load(ps + j, mask=j < n_cols, other=0.0).to(tl.float32)
        tl.store(ds + j, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=j < n_cols)


def width_and_blocks(n_cols: int):
    """Width of a block, and how many make a row."""
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    return width, triton.cdiv(n_cols, width)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and out may be padded."""
    if x.ndim != 2:
        raise ValueError("x must be a matrix")
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    width, blocks = width_and_blocks(n_cols)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, blocks, x.stride(0), out.stride(0), BLOCK=width, num_warps=8 if width > 2048 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx from dy and y; rows of all three may be padded."""
    if dy.size(0) != y.size(0) or dy.size(1) != y.size(1):
        raise ValueError("dy and y must have the same shape")
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    width, blocks = width_and_blocks(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        blocks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=width,
        num_warps=16 if width > 2048 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Ties the two together."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # Autograd gives dy in any layout. A block of dx is stored after its block of dy was read for the last
        # time, so one buffer is enough for both.
        grad = dy.contiguous()
        return softmax_backward(grad, y, out=grad)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
