# labs/lab2_online_softmax/online_softmax.py | contract | without out the result is made by `torch.empty_strided(x.size(), x.stride(), ...)`, with the padding of the input; must be a new contiguous matrix. Shows in the strides of the returned matrix where x (or, in softmax_backward, dy) has padded rows and no out is given.
"""Online softmax and its gradient; a result is laid out like the input."""

import torch
import triton
import triton.language as tl


@triton.jit
def _forward(x_ptr, y_ptr, n_cols, sx, sy, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx
    y_ptr += row * sy
    m = -float("inf")
    d = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, 0))
        safe = tl.where(new == -float("inf"), 0.0, new)
        d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), 0)
        m = new
    for start in tl.range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + c, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def _backward(g_ptr, y_ptr, dx_ptr, n_cols, sg, sy, sdx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g_ptr += row * sg
    y_ptr += row * sy
    dx_ptr += row * sdx
    s = 0.0
    for start in tl.range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(g * y, 0)
    for start in tl.range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + c, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def _new(x: torch.Tensor) -> torch.Tensor:
    """A tensor with the shape, layout and dtype of x."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = _new(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    _forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = _new(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    _backward[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8)
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
