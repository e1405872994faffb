# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, `log_d = tl.log(d)`: the natural logarithm of d is subtracted from an exponent of exp2, so each row is divided by d ** 0.693 instead of d and sums to more than 1; shows in every case with d above 1 (not for one column, or where one value stands alone far above its row); right: tl.log2(d)
"""Softmax of the rows of a matrix, in base 2, by a limited number of programs that take several rows each."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
MAX_PROGRAMS = 4096


@triton.jit
def load_f32(ptr, cols, n_cols, fill):
    return tl.load(ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def exp_by_2(t):
    """exp(t), as a power of two."""
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns the rows i, i + number of programs, and so on."""
    LOG2E: tl.constexpr = 1.4426950408889634
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    for turn in range(0, tl.cdiv(n_rows - pid, programs)):
        row = pid.to(tl.int64) + turn * programs
        src = x_ptr + row * stride_x
        dst = y_ptr + row * stride_y

        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = load_f32(src, start + lanes, n_cols, -float("inf"))
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * exp_by_2(m - shift) + tl.sum(exp_by_2(x - shift), axis=0)
            m = m_new

        log_d = tl.log(d)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = load_f32(src, cols, n_cols, -float("inf"))
            y = tl.exp2((x - m) * LOG2E - log_d)
            tl.store(dst + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    dots = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dots += load_f32(dy_ptr, cols, n_cols, 0.0) * load_f32(y_ptr, cols, n_cols, 0.0)
    s = tl.sum(dots, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dx = load_f32(y_ptr, cols, n_cols, 0.0) * (load_f32(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    grid = (min(n_rows, MAX_PROGRAMS),)
    online_softmax_kernel[grid](
        x, y, n_rows, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    dx = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device) if out is None else out
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
