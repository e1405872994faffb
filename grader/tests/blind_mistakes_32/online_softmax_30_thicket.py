# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel adds the products lane by lane in the block `acc` and then uses `y * (dy - acc)`: the lanes are never added to one number. Each lane subtracts only the products of its own columns (in a row of one block dx is y * (1 - y) * dy, the diagonal of the Jacobian), so softmax_backward and dx of softmax() are wrong in every case but one column; it should be `y * (dy - tl.sum(acc, axis=0))`. The forward pass is right
"""Online softmax: a jitted helper for loads, and wide blocks."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def fetch(ptr, cols, n_cols, fill):
    return tl.load(ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(ptr, cols, n_cols, block):
    tl.store(ptr + cols, block.to(ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    iota = tl.arange(0, BLOCK)

    # The first block starts the recurrence, the others continue it.
    x = fetch(x_ptr, iota, n_cols, -float("inf"))
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    for start in range(BLOCK, n_cols, BLOCK):
        x = fetch(x_ptr, start + iota, n_cols, -float("inf"))
        m_old = m
        m = tl.maximum(m_old, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m_old - shift) + tl.sum(tl.exp(x - shift), axis=0)

    for start in range(0, n_cols, BLOCK):
        x = fetch(x_ptr, start + iota, n_cols, -float("inf"))
        put(y_ptr, start + iota, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    iota = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = fetch(dy_ptr, start + iota, n_cols, 0.0)
        y = fetch(y_ptr, start + iota, n_cols, 0.0)
        acc += y * dy

    for start in range(0, n_cols, BLOCK):
        dy = fetch(dy_ptr, start + iota, n_cols, 0.0)
        y = fetch(y_ptr, start + iota, n_cols, 0.0)
        put(dx_ptr, start + iota, n_cols, y * (dy - acc))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
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
