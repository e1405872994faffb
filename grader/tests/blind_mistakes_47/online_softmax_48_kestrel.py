# labs/lab2_online_softmax/online_softmax.py | error | In softmax_backward, `warps = clamp(triton.cdiv(n_cols, 512), 4, 32)` is no power of two for many lengths, and Triton asserts that num_warps is one; it should come from the block: `clamp(block // 512, 4, 32)`. Raises where cdiv(n_cols, 512) lies between 4 and 32 and is no power of two, as 2600 or 3001 columns (6 warps); right for the others.
"""Online softmax in which whole blocks are read without a mask and only the rest of a row with one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def take(m, d, x):
    """The pair of maximum and sum after the block x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        m, d = take(m, d, tl.load(x_row + start + lanes).to(tl.float32))
    tail = tl.load(x_row + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
    m, d = take(m, d, tail)

    for start in range(0, whole, BLOCK):
        y = tl.exp(tl.load(x_row + start + lanes).to(tl.float32) - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty))
    y = tl.exp(tail - m) / d
    tl.store(y_row + rest, y.to(y_ptr.dtype.element_ty), mask=rest < n_cols)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    s = 0.0
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    dy_tail = tl.load(dy_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    y_tail = tl.load(y_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    s += tl.sum(y_tail * dy_tail, axis=0)

    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty))
    dx = y_tail * (dy_tail - s)
    tl.store(dx_row + rest, dx.to(dx_ptr.dtype.element_ty), mask=rest < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    # At most 8 warps for the widest block, so that several rows share a multiprocessor.
    warps = clamp(block // 1024, 1, 8)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    # One warp for each 512 columns of a row.
    warps = clamp(triton.cdiv(n_cols, 512), 4, 32)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
