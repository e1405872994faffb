# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In softmax_kernel the first loop loads with `other=0.0`: each lane past the end of the row takes part in the maximum as 0 and adds exp(0 - m) to d, so that rows sum to less than 1 wherever n_cols is no multiple of the block (0 everywhere in rows far below 0); it should be `other=-float("inf")`. (2) softmax_forward passes one stride, `x.stride(0)`, and softmax_kernel uses it for y, too (`y_row = y_ptr + row * stride`): where x or out is padded, rows of out go to wrong places, between its rows or past its end; the kernel needs a stride of its own for y, `out.stride(0)`.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 1024


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride
    y_row = y_ptr + row * stride

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        x = tl.load(x_row + cols, mask=keep, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_grad_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=keep, other=0.0).to(tl.float32)
        dx = y * dy - y * s
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block, num_warps=2)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_grad_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
