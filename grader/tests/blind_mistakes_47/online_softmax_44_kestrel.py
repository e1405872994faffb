# labs/lab2_online_softmax/online_softmax.py | corner | In `fold` (softmax_forward), `part = 1.0 + tl.sum(tl.where(x < top, tl.exp(x - base), 0.0), axis=0)` counts the maximum of a block once, however often it occurs; it should be `tl.sum(tl.exp(x - base), axis=0)`. Wrong only where the maximum occurs more than once in a block: constant rows, rows of few different values (powers of two, lowest), 16-bit rows with a tie; such rows sum to more than 1. softmax is wrong there, too.
"""Online softmax and its gradient; a row that fits one block is read once and stays in registers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def values_of(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32, and `other` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def fold(m, d, x):
    """Maximum and sum after one more block: first those of the block alone, then both brought to one scale."""
    top = tl.max(x, axis=0)
    base = tl.where(top == -float("inf"), 0.0, top)
    # The maximum itself is exp(0), which is 1 without any rounding.
    part = 1.0 + tl.sum(tl.where(x < top, tl.exp(x - base), 0.0), axis=0)
    m_new = tl.maximum(m, top)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + part * tl.exp(top - shift)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        x = values_of(x_row, lanes, n_cols, -float("inf"))
        m, d = fold(-float("inf"), 0.0, x)
        y = tl.exp(x - m) / d
        tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            m, d = fold(m, d, values_of(x_row, start + lanes, n_cols, -float("inf")))
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            y = tl.exp(values_of(x_row, cols, n_cols, -float("inf")) - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        dy = values_of(dy_row, lanes, n_cols, 0.0)
        y = values_of(y_row, lanes, n_cols, 0.0)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            s += tl.sum(values_of(y_row, cols, n_cols, 0.0) * values_of(dy_row, cols, n_cols, 0.0), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dx = values_of(y_row, cols, n_cols, 0.0) * (values_of(dy_row, cols, n_cols, 0.0) - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block > 4096 else 8 if block > 1024 else 4,
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
