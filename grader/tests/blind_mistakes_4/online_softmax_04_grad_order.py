# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward: the arguments of softmax_backward are swapped, (y, dy) in place of (dy, y), so dx = dy * (y - s); must be softmax_backward(dy.contiguous(), y).
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    xrow = x_ptr + row * stride_x
    yrow = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(xrow + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m2 = tl.maximum(m, tl.max(x, axis=0))
        safe_m = tl.where(m2 == -float("inf"), 0.0, m2)
        d = d * tl.exp(m - safe_m) + tl.sum(tl.exp(x - safe_m), axis=0)
        m = m2
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(xrow + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(yrow + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    yrow = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(yrow + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(yrow + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block > 8192 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
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
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(y, dy.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
