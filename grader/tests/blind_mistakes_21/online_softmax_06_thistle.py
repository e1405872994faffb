# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward launches softmax_backward_kernel without stride_dx (two strides for three tensors), which raises TypeError for a missing argument at every launch; out.stride(0) should be passed after y.stride(0).
"""Online softmax; the forward kernel is autotuned."""

import torch
import triton
import triton.language as tl

BACKWARD_BLOCK = 16384

FORWARD_CONFIGS = [
    triton.Config({"BLOCK": 16384}, num_warps=8),
    triton.Config({"BLOCK": 4096}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=2),
]


@triton.autotune(configs=FORWARD_CONFIGS, key=["n_cols"])
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - m)
        tl.store(y_row_ptr + offs, (e / d).to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    weighted = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        weighted += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + offs, (y * (dy - weighted)).to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps
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
    return OnlineSoftmax.apply(x)
