# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel: `parts` holds one partial sum for each lane and is added up after the loop, but it starts as the scalar `parts = 0.0`; in the loop it becomes a block of BLOCK numbers, and Triton does not compile a loop whose carried variable changes its type (fp32 to a block of fp32). On a GPU, and wherever the kernel is compiled, softmax_forward and softmax fail in every case; in the interpreter the results are right. Should be `parts = tl.zeros([BLOCK], dtype=tl.float32)`.
"""Online softmax whose sum stays spread over the lanes until the row has been read."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """The maximum is common to the row; only one reduction of the sum is left, at the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    lane = tl.arange(0, BLOCK)

    peak = -float("inf")
    parts = 0.0
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(
            x_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        parts = parts * tl.exp(peak - base) + tl.exp(x - base)
        peak = higher
    total = tl.sum(parts, axis=0)

    out_row = y_ptr + row * stride_y
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(
            x_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        share = tl.exp(x - peak) / total
        tl.store(out_row + col, share.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """The dot product of y and dy, spread over the lanes as well, then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    out_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        g = tl.load(dy_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        products += g * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        g = tl.load(dy_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(out_row + col, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written to `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = 8 if width == FORWARD_BLOCK else clamp(width // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=width,
        num_warps=clamp(width // 512, 4, 32),
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
