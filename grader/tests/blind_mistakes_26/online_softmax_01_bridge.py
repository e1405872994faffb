# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In lane_softmax_kernel, `norm = tl.sum(d, axis=0)` adds the sums of the lanes although each is relative to the maximum of its own lane; it should be tl.sum(d * tl.exp(m - top), axis=0). The rows of softmax_forward (and of softmax, whose gradient is wrong, too) sum to less than 1: where a row fits one block, norm is the number of finite columns. Right only where all lanes have the same maximum (one column, constant rows). softmax_backward alone is right.
"""Online softmax with a maximum and a sum for each lane, which are brought together once at the end of a row."""

import torch
import triton
import triton.language as tl

WIDEST = 2048


@triton.jit
def lane_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)

    # Lane k sees the columns k, k + BLOCK, k + 2 * BLOCK, ...: no reduction inside the loop.
    m = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    d = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        v = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, v)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(v - shift)
        m = m_new

    # One maximum and one sum for the row.
    top = tl.max(m, axis=0)
    norm = tl.sum(d, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        v = tl.load(x_ptr + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(v - top) / norm
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def lane_gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        g = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        partial += g * y
    s = tl.sum(partial, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        g = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (g - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def width_and_warps(n_cols: int):
    """A block for rows of this length, and the warps for it."""
    width = min(triton.next_power_of_2(n_cols), WIDEST)
    return width, (4 if width > 512 else 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width, warps = width_and_warps(n_cols)
    lane_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width, warps = width_and_warps(n_cols)
    lane_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=width, num_warps=warps
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
