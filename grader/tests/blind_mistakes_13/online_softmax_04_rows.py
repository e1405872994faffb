# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In grad_rows `dot = 0.0` stands before the loop over the rows of a program and is never reset, so each row but the first of a program also has the sums of the rows before it; it should be set to 0.0 inside `for i in range(ROWS)`.
"""Softmax: a program works on ROWS rows, one after the other."""

import torch
import triton
import triton.language as tl

WIDTH = 8192
ROWS = 4  # rows of a program


@triton.jit
def probs_rows(src, dst, n_rows, n_cols, src_step, dst_step, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * ROWS
    lane = tl.arange(0, WIDTH)
    for i in range(ROWS):
        row = first + i
        if row < n_rows:
            src_row = src + row * src_step
            dst_row = dst + row * dst_step
            # running maximum and running sum of this row
            big = -float("inf")
            acc = 0.0
            for begin in range(0, n_cols, WIDTH):
                col = begin + lane
                v = tl.load(src_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
                big_next = tl.maximum(big, tl.max(v, axis=0))
                ref = tl.where(big_next == -float("inf"), 0.0, big_next)
                acc = acc * tl.exp(big - ref) + tl.sum(tl.exp(v - ref), axis=0)
                big = big_next
            for begin in range(0, n_cols, WIDTH):
                col = begin + lane
                v = tl.load(src_row + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
                p = tl.exp(v - big) / acc
                tl.store(dst_row + col, p.to(dst.dtype.element_ty), mask=col < n_cols)


@triton.jit
def grad_rows(
    g_ptr,
    p_ptr,
    dst,
    n_rows,
    n_cols,
    g_step,
    p_step,
    dst_step,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    lane = tl.arange(0, WIDTH)
    dot = 0.0  # sum of g * p
    for i in range(ROWS):
        row = first + i
        if row < n_rows:
            g_row = g_ptr + row * g_step
            p_row = p_ptr + row * p_step
            dst_row = dst + row * dst_step
            for begin in range(0, n_cols, WIDTH):
                col = begin + lane
                g = tl.load(g_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
                p = tl.load(p_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
                dot += tl.sum(g * p, axis=0)
            for begin in range(0, n_cols, WIDTH):
                col = begin + lane
                g = tl.load(g_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
                p = tl.load(p_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
                tl.store(dst_row + col, (p * (g - dot)).to(dst.dtype.element_ty), mask=col < n_cols)


def width_of(n_cols):
    return min(triton.next_power_of_2(n_cols), WIDTH)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    probs_rows[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, WIDTH=width_of(n_cols), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grad_rows[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        WIDTH=width_of(n_cols),
        num_warps=8,
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
