# labs/lab2_online_softmax/online_softmax.py | corner | In `log_sum_exp`, `return m + tl.log(d)`, used as `tl.exp(x - lse)` in `softmax_kernel`: where m is far from 0, log(d) loses its digits in the sum. It should be `tl.exp(x - m) / d`, or `tl.exp((x - m) - tl.log(d))`. Right for ordinary values; wrong for rows far from 0: offset of 16384 (errors of about 1e-3), some hundreds or thousands below or above 0, and for several columns that share a huge maximum (y is 1 for each of them).
"""Online softmax with one number kept for each row: its log-sum-exp."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def row_block(row_ptr, start, n_cols, other, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def put_block(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def log_sum_exp(row_ptr, n_cols, BLOCK: tl.constexpr):
    """log(sum of exp(x)) over one row, by the online recurrence."""
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = row_block(row_ptr, start, n_cols, -float("inf"), BLOCK)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # a block may be -inf alone
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m + tl.log(d)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - log_sum_exp(x)): no division, and the exponent is never above 0; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lse = log_sum_exp(x_row, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = row_block(x_row, start, n_cols, -float("inf"), BLOCK)
        put_block(y_row, start, n_cols, tl.exp(x - lse), BLOCK)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = row_block(dy_row, start, n_cols, 0.0, BLOCK)
        y = row_block(y_row, start, n_cols, 0.0, BLOCK)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = row_block(dy_row, start, n_cols, 0.0, BLOCK)
        y = row_block(y_row, start, n_cols, 0.0, BLOCK)
        put_block(dx_row, start, n_cols, y * (dy - s), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(4, block // 512),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, and softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
