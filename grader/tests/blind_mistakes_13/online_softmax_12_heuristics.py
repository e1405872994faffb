# labs/lab2_online_softmax/online_softmax.py | right | Right in every respect; unusual: @triton.heuristics choose the block and a constexpr branch that keeps a row of one block in registers without any loop, and powers of 2 take the place of exp.
"""Softmax and its gradient. Rows that fit into one block are read once, longer ones twice."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "FITS": lambda args: args["n_cols"] <= WIDEST,
    }
)
@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, FITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if FITS:
        x = tl.load(x_row + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
        # There is a finite value in each row, so the maximum is finite as well.
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            base = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp2((m - base) * LOG2E) + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "FITS": lambda args: args["n_cols"] <= WIDEST,
    }
)
@triton.jit
def softmax_rows_gradient(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if FITS:
        dy = tl.load(dy_row + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + lanes, mask=lanes < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def warps_for(n_cols, columns_of_a_warp, fewest, most):
    wanted = min(triton.next_power_of_2(n_cols), WIDEST) // columns_of_a_warp
    return max(fewest, min(wanted, most))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_rows[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), num_warps=warps_for(n_cols, 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_rows_gradient[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        num_warps=warps_for(n_cols, 512, 4, 32),
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
