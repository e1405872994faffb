# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_backward`, `out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)` takes over the row stride of dy; it should be a contiguous `torch.empty(dy.shape, ...)`, as the README asks for a new contiguous matrix. Shows where no `out` is given and dy has gaps between its rows: values are right, the result is not contiguous.
"""Online softmax and its gradient, with the number of warps tuned for each width of a row."""

import torch
import triton
import triton.language as tl

WIDEST = 4096
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def tuned_forward(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One row: pointers to its blocks are moved on in both sweeps."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    here = x_ptr + row * stride_x + lanes
    left = n_cols
    m = -float("inf")
    d = 0.0
    for _ in range(0, tl.cdiv(n_cols, BLOCK)):
        x = tl.load(here, mask=lanes < left, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        here += BLOCK
        left -= BLOCK
    here = x_ptr + row * stride_x + lanes
    there = y_ptr + row * stride_y + lanes
    left = n_cols
    for _ in range(0, tl.cdiv(n_cols, BLOCK)):
        x = tl.load(here, mask=lanes < left, other=-float("inf")).to(tl.float32)
        tl.store(there, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=lanes < left)
        here += BLOCK
        there += BLOCK
        left -= BLOCK


@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def tuned_backward(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """One row: sum of dy * y, then dx = y * (dy - sum)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = tl.zeros((BLOCK,), tl.float32)
    for block in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for block in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    tuned_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    tuned_backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block
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
