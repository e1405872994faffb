# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, store: `.to(dx_ptr.dtype)` converts to the dtype of the pointer itself, a pointer type, and Triton cannot cast fp32 to a pointer, so the kernel does not compile in any call of softmax_backward or backward of softmax. It should be `.to(dx_ptr.dtype.element_ty)`.
"""Online softmax; see arXiv:1805.02867, algorithm 3."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    out_type = y_ptr.dtype.element_ty
    m = -float("inf")
    d = 0.0
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + row * stride_y + cols, y.to(out_type), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for k in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype), mask=cols < n_cols)


def block_and_warps(n_cols: int, columns_per_warp: int) -> tuple:
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    return block, min(max(block // columns_per_warp, 4), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block, warps = block_and_warps(x.shape[1], 1024)
    online_softmax_kernel[(x.shape[0],)](
        x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    block, warps = block_and_warps(dy.shape[1], 512)
    softmax_backward_kernel[(dy.shape[0],)](
        dy,
        y,
        out,
        dy.shape[1],
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
