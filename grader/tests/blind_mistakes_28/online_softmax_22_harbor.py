# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward makes dy contiguous only `if dy.stride(1) == 0`, that is where columns are expanded. A dy that is transposed (stride(1) = n_rows) or takes every second column (stride(1) = 2) goes to the kernel as it is, which assumes columns at distance 1, so the gradient of softmax is wrong for these layouts (of more than one row or column); contiguous, padded and expanded dy are right. It should test `dy.stride(1) != 1`, or always take dy.contiguous().
"""Online softmax and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def load_scores(row_ptr, cols, n_cols):
    """One block of a row of scores in fp32, -inf past the end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def load_factors(row_ptr, cols, n_cols):
    """One block of a row in fp32, 0 past the end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    offs = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_scores(x_ptr, start + offs, n_cols)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        base = tl.where(new_top == -float("inf"), 0.0, new_top)
        # 2 ** (t * log2(e)) is exp(t)
        total *= tl.exp2((top - base) * 1.4426950408889634)
        total += tl.sum(tl.exp2((x - base) * 1.4426950408889634), axis=0)
        top = new_top
    scale = 1.0 / total
    for start in range(0, n_cols, BLOCK):
        x = load_scores(x_ptr, start + offs, n_cols)
        y = tl.exp2((x - top) * 1.4426950408889634) * scale
        tl.store(y_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask=start + offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    offs = tl.arange(0, BLOCK)
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_factors(dy_ptr, start + offs, n_cols)
        y = load_factors(y_ptr, start + offs, n_cols)
        dot += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_factors(dy_ptr, start + offs, n_cols)
        y = load_factors(y_ptr, start + offs, n_cols)
        dx = y * (dy - dot)
        tl.store(dx_ptr + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=start + offs < n_cols)


def new_matrix(like: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the shape and the dtype of another."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = new_matrix(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = max(1, min(block // 1024, 4))
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = new_matrix(dy)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = max(4, min(block // 512, 16))
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
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
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
