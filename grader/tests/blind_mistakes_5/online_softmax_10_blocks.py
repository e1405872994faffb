# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward saves the input x with save_for_backward instead of the result y, and backward hands it to softmax_backward as y; so the gradient of softmax() is wrong everywhere, although softmax_forward and softmax_backward are right.
"""Softmax, block pointer version."""
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    r = tl.program_id(axis=0).to(tl.int64)
    xb = tl.make_block_ptr(x_ptr + r * stride_x, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    yb = tl.make_block_ptr(y_ptr + r * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    xb2 = xb
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        t = tl.load(xb, boundary_check=(0,), padding_option="zero").to(tl.float32)
        t = tl.where(start + lanes < n_cols, t, -float("inf"))
        m_next = tl.maximum(m, tl.max(t, axis=0))
        base = tl.where(m_next > -float("inf"), m_next, 0.0)
        d *= tl.exp(m - base)
        d += tl.sum(tl.exp(t - base), axis=0)
        m = m_next
        xb = tl.advance(xb, (BLOCK,))

    for start in range(0, n_cols, BLOCK):
        t = tl.load(xb2, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(yb, (tl.exp(t - m) / d).to(y_ptr.dtype.element_ty), boundary_check=(0,))
        xb2 = tl.advance(xb2, (BLOCK,))
        yb = tl.advance(yb, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    r = tl.program_id(axis=0).to(tl.int64)
    gb = tl.make_block_ptr(dy_ptr + r * stride_dy, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    yb = tl.make_block_ptr(y_ptr + r * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    ob = tl.make_block_ptr(dx_ptr + r * stride_dx, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    gb2, yb2 = gb, yb

    s = 0.0
    for _ in range(0, n_cols, BLOCK):
        g = tl.load(gb, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(yb, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(g * y, axis=0)
        gb = tl.advance(gb, (BLOCK,))
        yb = tl.advance(yb, (BLOCK,))

    for _ in range(0, n_cols, BLOCK):
        g = tl.load(gb2, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(yb2, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(ob, (y * (g - s)).to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        gb2 = tl.advance(gb2, (BLOCK,))
        yb2 = tl.advance(yb2, (BLOCK,))
        ob = tl.advance(ob, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    B = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=B, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    B = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=B, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
