# labs/lab2_online_softmax/online_softmax.py | corner | lse_kernel stores m + log(d) as one fp32 number: where |m| is large (from about 1e4 on, completely from 1e8 on) log(d) is lost in it, and rows no longer sum to 1; the maximum and log(d) (or d) must be kept apart and subtracted one after the other.
import torch
import triton
import triton.language as tl

PIECE = 4096


@triton.jit
def lse_kernel(x_ptr, lse_ptr, n_cols, stride_x, BLOCK: tl.constexpr):
    """logarithm of the sum of exp(x), for each row"""
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        if new > -float("inf"):
            d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    tl.store(lse_ptr + row, m + tl.log(d))


@triton.jit
def exp_kernel(x_ptr, y_ptr, lse_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """one chunk of one row; a grid of rows x chunks"""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    lse = tl.load(lse_ptr + row)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    # as in flash attention: one number is enough for a row
    y = tl.exp(x - lse)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def delta_kernel(dy_ptr, y_ptr, s_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    tl.store(s_ptr + row, s)


@triton.jit
def grad_kernel(dy_ptr, y_ptr, s_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(s_ptr + row)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(PIECE, triton.next_power_of_2(n_cols))
    lse = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    lse_kernel[(n_rows,)](x, lse, n_cols, x.stride(0), BLOCK=block)
    chunks = triton.cdiv(n_cols, block)
    exp_kernel[(n_rows, chunks)](x, out, lse, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(PIECE, triton.next_power_of_2(n_cols))
    s = torch.empty(n_rows, dtype=torch.float32, device=dy.device)
    delta_kernel[(n_rows,)](dy, y, s, n_cols, dy.stride(0), y.stride(0), BLOCK=block)
    grad_kernel[(n_rows, triton.cdiv(n_cols, block))](
        dy, y, s, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block
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
