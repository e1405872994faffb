# labs/lab2_online_softmax/online_softmax.py | error | Exercise softmax_backward (and the gradient of softmax), host function `even_block`: `triton.cdiv(triton.cdiv(n_cols, n_blocks), 32) * 32` is a multiple of 32 and often no power of two, so `tl.arange(0, BLOCK)` does not compile; it should be the next power of two, at most `BACKWARD_BLOCK`. Shows in sizes such as 129 (160), 1536, 2600 (2624), 16385 (5472), 40000 (8000); sizes such as 127, 128, 1001, 4096 and 131072 are right, as is the forward pass.
"""Online softmax and its gradient. The forward pass goes through blocks with a mask only where a row ends."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fold(m, d, x):
    """The maximum and the sum of a row after the numbers x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK  # the columns of whole blocks; fewer than BLOCK are left
    tail = whole + lanes

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes, eviction_policy="evict_last").to(tl.float32)
        m, d = fold(m, d, x)
    rest = tl.load(x_row_ptr + tail, mask=tail < n_cols, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, rest)

    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty))
    y = tl.exp(rest - m) / d
    tl.store(y_row_ptr + tail, y.to(y_ptr.dtype.element_ty), mask=tail < n_cols)


@triton.jit
def softmax_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        products += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def even_block(n_cols: int, widest: int) -> int:
    """Width of the blocks that share a row evenly, so that the last one is not nearly empty."""
    n_blocks = triton.cdiv(n_cols, widest)
    return triton.cdiv(triton.cdiv(n_cols, n_blocks), 32) * 32


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=max(1, block // 512)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = even_block(n_cols, BACKWARD_BLOCK)
    warps = 16 if block > 4096 else 8 if block > 2048 else 4
    softmax_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
