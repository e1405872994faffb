# labs/lab2_online_softmax/online_softmax.py | error | `softmax_backward`: `warps = clamp(triton.cdiv(n_cols, 512), 4, 16)` is no power of two for some row lengths, and Triton refuses such a `num_warps`. It should follow the block (a power of two), e.g. `clamp(block // 512, 4, 16)`. Shows for 2049 to 3584 and for 4097 to 7680 columns, e.g. 2600 and 3001.
"""Softmax and its gradient with pointers that move along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def walk_forward(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_first = x_ptr + row * stride_x + lanes
    top = -float("inf")
    total = 0.0
    here = x_first
    for start in range(0, n_cols, BLOCK):
        x = tl.load(here, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = new_top
        here += BLOCK
    here = x_first
    there = y_ptr + row * stride_y + lanes
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(here, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(there, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=inside)
        here += BLOCK
        there += BLOCK


@triton.jit
def walk_backward(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_first = dy_ptr + row * stride_dy + lanes
    y_first = y_ptr + row * stride_y + lanes
    s = 0.0
    dy_here = dy_first
    y_here = y_first
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_here, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_here, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_here += BLOCK
        y_here += BLOCK
    dy_here = dy_first
    y_here = y_first
    dx_here = dx_ptr + row * stride_dx + lanes
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_here, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_here, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_here, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)
        dy_here += BLOCK
        y_here += BLOCK
        dx_here += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    walk_forward[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(triton.cdiv(n_cols, 512), 4, 16)
    walk_backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
