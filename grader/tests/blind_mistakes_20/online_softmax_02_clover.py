# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward calls softmax_backward(probs, grad) with the two arguments exchanged: the sum is the same, but dx becomes grad * (probs - s) in place of probs * (grad - s), so the gradient of softmax() is wrong. It should be softmax_backward(grad.contiguous(), probs).
"""Online softmax in base 2, and its gradient."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def power(z):
    """e to the z, through the instruction that the GPU has."""
    return tl.exp2(z * 1.4426950408889634)


@triton.jit
def forward_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    hi = -float("inf")
    den = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(source + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_hi = tl.maximum(hi, tl.max(x, axis=0))
        # nothing to add as long as all columns have been -inf
        if new_hi > -float("inf"):
            den = den * power(hi - new_hi) + tl.sum(power(x - new_hi), axis=0)
        hi = new_hi
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(source + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = power(x - hi) / den
        tl.store(target + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_rows(g_ptr, p_ptr, dx_ptr, n_cols, stride_g, stride_p, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    g_row = g_ptr + row * stride_g
    p_row = p_ptr + row * stride_p
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = p * (g - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def plan(tensors, per_warp: int):
    """The grid, the arguments after the tensors, and the options of a launch with one program for each row."""
    n_rows, n_cols = tensors[0].shape
    block = max(32, min(triton.next_power_of_2(n_cols), WIDEST))
    warps = max(1, min(block // per_warp, 16))
    numbers = [n_cols]
    for tensor in tensors:
        numbers.append(tensor.stride(0))
    return (n_rows,), numbers, {"BLOCK": block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    grid, numbers, options = plan([x, out], 1024)
    forward_rows[grid](x, out, *numbers, **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient for x, from the gradient for y, and y."""
    if out is None:
        out = torch.empty_like(dy)
    grid, numbers, options = plan([dy, y, out], 512)
    backward_rows[grid](dy, y, out, *numbers, **options)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Differentiable softmax; only the probabilities are kept."""

    @staticmethod
    def forward(ctx, x):
        probs = softmax_forward(x)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, grad):
        probs = ctx.saved_tensors[0]
        # after sum() all elements of grad are one number in memory
        grad = grad.contiguous()
        return softmax_backward(probs, grad)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
