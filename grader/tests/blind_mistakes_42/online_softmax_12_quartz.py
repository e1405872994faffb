# labs/lab2_online_softmax/online_softmax.py | right | Whole blocks without a mask, the tail once with a mask and kept in registers, and the second sweep goes over the blocks from right to left; the same in the backward pass. Nothing is wrong.
"""Softmax over rows: whole blocks without a mask, one tail with a mask, and a second sweep from the end."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def fold(m, d, x):
    """Maximum and sum of a row so far, from those before and the next block in fp32."""
    top = tl.maximum(m, tl.max(x, axis=0))
    # While nothing but -inf was seen any finite shift is right.
    shift = tl.where(top > -float("inf"), top, 0.0)
    return top, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - m) / d; program i owns row i.

    The first sweep goes from left to right, the second from right to left: what was read last is read again
    first, while the caches still have it.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    whole = n_cols // BLOCK * BLOCK  # columns in blocks that have no lane past the end
    in_tail = whole + lanes < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        m, d = fold(m, d, x)

    # The tail stays in registers. Where there is none, no lane of it is read, counted or stored.
    tail = tl.load(x_ptrs + whole, mask=in_tail, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, tail)
    scale = 1.0 / d
    tl.store(y_ptrs + whole, (tl.exp(tail - m) * scale).to(y_ptr.dtype.element_ty), mask=in_tail)

    for done in range(BLOCK, whole + 1, BLOCK):
        start = whole - done
        x = tl.load(x_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) * scale
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy); program i owns row i, and goes over it as the forward pass does."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    whole = n_cols // BLOCK * BLOCK
    in_tail = whole + lanes < n_cols

    s = 0.0
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + start, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    dy_tail = tl.load(dy_ptrs + whole, mask=in_tail, other=0.0).to(tl.float32)
    y_tail = tl.load(y_ptrs + whole, mask=in_tail, other=0.0).to(tl.float32)
    s += tl.sum(dy_tail * y_tail, axis=0)
    tl.store(dx_ptrs + whole, (y_tail * (dy_tail - s)).to(dx_ptr.dtype.element_ty), mask=in_tail)

    for done in range(BLOCK, whole + 1, BLOCK):
        start = whole - done
        dy = tl.load(dy_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + start, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), eviction_policy="evict_first")


def block_and_warps(n_cols: int, columns_of_a_warp: int) -> tuple:
    """The width of a block, a power of two, and the warps for it, 1 to 16."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, min(max(block // columns_of_a_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, 1024)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block, warps = block_and_warps(n_cols, 512)
    softmax_backward_kernel[(n_rows,)](
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
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
