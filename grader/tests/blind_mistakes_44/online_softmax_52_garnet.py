# labs/lab2_online_softmax/online_softmax.py | error | `backward_kernel` (softmax_backward, and softmax): `stride_dy.to(tl.int64)`, and so for `stride_y` and `stride_dx`. An integer argument that is 1 is a constant without `.to`, so the kernel does not compile where a row stride is 1, as in a contiguous matrix of one column, (1, 1) for example. It should be `rows.to(tl.int64) * stride_dy`. All other cases are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_TILE = 8192  # numbers of a tile: short rows share a program


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i normalises row i: maximum and sum in one sweep, the result in another."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + cols
    y_ptrs = y_ptr + row * stride_y + cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=cols < n_cols - start, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        if m_new > -float("inf"):
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(y_ptrs + start, (tl.exp(x - m) * scale).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum y * dy) for ROWS rows, BLOCK columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    # The matrix may reach beyond 2^31 elements.
    dy_ptrs = dy_ptr + rows * stride_dy.to(tl.int64) + cols
    y_ptrs = y_ptr + rows * stride_y.to(tl.int64) + cols
    dx_ptrs = dx_ptr + rows * stride_dx.to(tl.int64) + cols
    s = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (cols < n_cols - start)
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=1)[:, None]
    for start in range(0, n_cols, BLOCK):
        inside = (rows < n_rows) & (cols < n_cols - start)
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=min(max(block // 1024, 1), 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_TILE)
    rows = max(1, min(2048 // block, 16))
    backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=min(max(rows * block // 512, 1), 16),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
