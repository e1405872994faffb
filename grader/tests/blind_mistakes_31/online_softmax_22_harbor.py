# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax in which every lane keeps a maximum and a sum of its own; they meet once, behind the loop."""

import torch
import triton
import triton.language as tl

WIDEST = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(t):
    """e to the t, by way of the hardware's power of two."""
    return tl.exp2(t * LOG2E)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    xs = x_ptr + row * stride_x + lane
    ys = y_ptr + row * stride_y + lane

    peak = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(xs + start, mask=lane + start < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, x)
        # A lane that has seen nothing but -inf is measured from 0.
        origin = tl.where(higher == -float("inf"), 0.0, higher)
        part = part * power(peak - origin) + power(x - origin)
        peak = higher

    top = tl.max(peak, axis=0)
    scale = 1.0 / tl.sum(part * power(peak - top), axis=0)

    # From the end to the start, as the end of the row was read last.
    blocks = tl.cdiv(n_cols, BLOCK)
    for i in range(0, blocks):
        start = (blocks - 1 - i) * BLOCK
        inside = lane + start < n_cols
        x = tl.load(xs + start, mask=inside, other=-float("inf")).to(tl.float32)
        y = power(x - top) * scale
        tl.store(ys + start, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, n_cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dys = dy_ptr + row * stride_dy + lane
    ys = y_ptr + row * stride_y + lane
    dxs = dx_ptr + row * stride_dx + lane

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = lane + start < n_cols
        dy = tl.load(dys + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(ys + start, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    blocks = tl.cdiv(n_cols, BLOCK)
    for i in range(0, blocks):
        start = (blocks - 1 - i) * BLOCK
        inside = lane + start < n_cols
        dy = tl.load(dys + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(ys + start, mask=inside, other=0.0).to(tl.float32)
        tl.store(dxs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def launch_options(n_cols: int, per_warp: int):
    """Width of a block and warps of a program, as keywords of a launch."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "num_warps": clamp(block // per_warp, 1, 8)}


def matrix_like(x: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix with the shape, the dtype and the device of x."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the rows of x."""
    y = matrix_like(x) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, y, x.stride(0), y.stride(0), n_cols, **launch_options(n_cols, 1024)
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient for the input of softmax."""
    dx = matrix_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), n_cols, **launch_options(n_cols, 512)
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Both passes for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the rows of x."""
    return OnlineSoftmax.apply(x)
