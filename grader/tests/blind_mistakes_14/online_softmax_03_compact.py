# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel, `dx = g * p * (1.0 - p)` uses only the diagonal of the Jacobian (as for a sigmoid); it should be `p * (g - s)` with s the sum of g * p over the whole row, which needs a loop of its own before.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fetch(ptr, cols, n, other):
    return tl.load(ptr + cols, mask=cols < n, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    xr = x_ptr + i * stride_x
    yr = y_ptr + i * stride_y
    c = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for k in range(0, n_cols, BLOCK):
        v = fetch(xr, k + c, n_cols, -float("inf"))
        hi = tl.maximum(m, tl.max(v, 0))
        z = tl.where(hi == -float("inf"), 0.0, hi)
        d = d * tl.exp(m - z) + tl.sum(tl.exp(v - z), 0)
        m = hi
    for k in range(0, n_cols, BLOCK):
        v = fetch(xr, k + c, n_cols, -float("inf"))
        p = tl.exp(v - m) / d
        tl.store(yr + k + c, p.to(y_ptr.dtype.element_ty), mask=k + c < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    gr = dy_ptr + i * stride_dy
    yr = y_ptr + i * stride_y
    dr = dx_ptr + i * stride_dx
    c = tl.arange(0, BLOCK)
    for k in range(0, n_cols, BLOCK):
        g = fetch(gr, k + c, n_cols, 0.0)
        p = fetch(yr, k + c, n_cols, 0.0)
        dx = g * p * (1.0 - p)
        tl.store(dr + k + c, dx.to(dx_ptr.dtype.element_ty), mask=k + c < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    r, n = x.shape
    b = min(triton.next_power_of_2(n), FORWARD_BLOCK)
    online_softmax_kernel[(r,)](x, out, n, x.stride(0), out.stride(0), BLOCK=b, num_warps=4)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    r, n = dy.shape
    b = min(triton.next_power_of_2(n), BACKWARD_BLOCK)
    softmax_backward_kernel[(r,)](
        dy, y, out, n, dy.stride(0), y.stride(0), out.stride(0), BLOCK=b, num_warps=8
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


def softmax(x):
    return OnlineSoftmax.apply(x)
