# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax that rescales its sum only in blocks that raise the maximum, its gradient, and autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + cols
    y_ptrs = y_ptr + row * stride_y + cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs + start, mask=cols < left, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        if top > m:
            d = d * tl.exp(m - top)
            m = top
        # before the first finite value there is nothing to add
        if m > -float("inf"):
            d += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs + start, mask=cols < left, other=-float("inf")).to(tl.float32)
        tl.store(y_ptrs + start, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < left)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + cols
    y_ptrs = y_ptr + row * stride_y + cols
    dx_ptrs = dx_ptr + row * stride_dx + cols
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs + start, mask=cols < left, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=cols < left, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs + start, mask=cols < left, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=cols < left, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < left)


def settings(n_cols: int, widest: int, columns_a_warp: int):
    """What both launches share: the width of a block, and how many warps work on it."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": min(max(block // columns_a_warp, 1), 8)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    options = settings(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    options = settings(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
