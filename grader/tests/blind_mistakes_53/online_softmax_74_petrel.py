# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_forward`, without `out`, `torch.empty_strided(x.shape, x.stride(), ...)` gives the result the padded layout of x; the README asks for a new contiguous matrix (`torch.empty(x.shape, ...)`). Shows where x has gaps between its rows and no `out` is passed, also in softmax(x); the numbers are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


def forward_block(args):
    """Columns of a block of the forward pass."""
    return min(triton.next_power_of_2(args["n_cols"]), FORWARD_BLOCK)


def backward_block(args):
    """Columns of a block of the backward pass."""
    return min(triton.next_power_of_2(args["n_cols"]), BACKWARD_BLOCK)


@triton.heuristics({"BLOCK": forward_block, "EVEN": lambda args: args["n_cols"] % forward_block(args) == 0})
@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, EVEN: tl.constexpr
):
    """Program i owns row i; EVEN says that the row consists of whole blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(x_row_ptr + cols, eviction_policy="evict_last").to(tl.float32)
        else:
            x = tl.load(
                x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(x_row_ptr + cols, eviction_policy="evict_first").to(tl.float32)
            y = (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty)
            tl.store(y_row_ptr + cols, y, eviction_policy="evict_first")
        else:
            mask = cols < n_cols
            x = tl.load(
                x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty)
            tl.store(y_row_ptr + cols, y, mask=mask, eviction_policy="evict_first")


@triton.heuristics({"BLOCK": backward_block})
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row_ptr + cols, dx, mask=mask, eviction_policy="evict_first")


def forward_warps(n_cols: int) -> int:
    """One warp for each 1024 columns up to 4, and 8 for the widest block."""
    if n_cols > 8192:
        return 8
    if n_cols > 2048:
        return 4
    return 2 if n_cols > 1024 else 1


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    The result goes to `out` where one is given, and otherwise to a new matrix with the layout of x.
    """
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), num_warps=forward_warps(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=16 if n_cols > 4096 else 8
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
