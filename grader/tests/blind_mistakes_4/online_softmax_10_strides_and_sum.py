# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_forward: the launch gives x.stride(0) twice, so out is addressed with the row stride of x; the second must be out.stride(0). (2) softmax_backward_kernel, first loop: s is assigned anew for each block in place of being added up, so rows of more than BACKWARD_BLOCK (4096) columns only have the sum of their last block; must be s += .
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(row_max, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        row_sum = row_sum * tl.exp(row_max - shift) + tl.sum(tl.exp(x - shift), axis=0)
        row_max = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s = tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    nw = 8 if block > 8192 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), x.stride(0), BLOCK=block, num_warps=nw)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 4, 32)
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
