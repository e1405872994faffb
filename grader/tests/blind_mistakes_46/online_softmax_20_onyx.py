# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. The forward takes the rest of the row first (masked, possibly empty, with `left` all false) and then whole blocks without a mask; the gradient peels off the first block, keeps it in registers, and has the number of blocks as a constexpr.
"""Softmax in whole blocks and a masked rest, and a gradient that keeps the first block."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def online_step(m, d, x):
    """One turn of the recurrence: the largest value so far, and the sum of exponentials relative to it."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    safe = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Whole blocks need no mask; one masked block takes what is left, which may be nothing."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_at = x_ptr + row * stride_x + lanes
    y_at = y_ptr + row * stride_y + lanes
    n_whole = n_cols // BLOCK * BLOCK
    left = lanes < n_cols - n_whole

    # The rest comes first: the order of the blocks does not matter to the recurrence.
    rest = tl.load(x_at + n_whole, mask=left, other=-float("inf")).to(tl.float32)
    m = tl.max(rest, axis=0)
    d = tl.sum(tl.exp(rest - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    for start in range(0, n_whole, BLOCK):
        m, d = online_step(m, d, tl.load(x_at + start).to(tl.float32))

    tl.store(y_at + n_whole, (tl.exp(rest - m) / d).to(y_ptr.dtype.element_ty), mask=left)
    for start in range(0, n_whole, BLOCK):
        x = tl.load(x_at + start).to(tl.float32)
        tl.store(y_at + start, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, N_BLOCKS: tl.constexpr
):
    """The first block stays in registers; rows of one block are therefore read once."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_at = dy_ptr + row * stride_dy + lanes
    y_at = y_ptr + row * stride_y + lanes
    dx_at = dx_ptr + row * stride_dx + lanes

    first = lanes < n_cols
    dy_first = tl.load(dy_at, mask=first, other=0.0).to(tl.float32)
    y_first = tl.load(y_at, mask=first, other=0.0).to(tl.float32)
    s = tl.sum(dy_first * y_first, axis=0)
    for block in range(1, N_BLOCKS):
        mask = lanes < n_cols - block * BLOCK
        dy = tl.load(dy_at + block * BLOCK, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_at + block * BLOCK, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    tl.store(dx_at, (y_first * (dy_first - s)).to(dx_ptr.dtype.element_ty), mask=first)
    for block in range(1, N_BLOCKS):
        mask = lanes < n_cols - block * BLOCK
        dy = tl.load(dy_at + block * BLOCK, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_at + block * BLOCK, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_at + block * BLOCK, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x, which may lie any number of elements apart, as those of `out`."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of the softmax, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        N_BLOCKS=triton.cdiv(n_cols, block),
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient."""

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
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
