# labs/lab2_online_softmax/online_softmax.py | corner | forward: the rows of a program are n_rows // programs, rounded down, it must be cdiv with a check row < n_rows; the last rows are never written where n_rows is above 64 and no multiple of 64 (e.g. 149 rows)
"""Online softmax. Forward: few programs, each with a run of neighbouring rows. Backward: a program for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
MAX_PROGRAMS = 64

MINUS_INF = tl.constexpr(float("-inf"))


@triton.jit
def _fwd(
    x_ptr,
    y_ptr,
    n_cols,
    rows_each,  # how many rows this program owns
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * rows_each
    offs = tl.arange(0, BLOCK)
    for i in range(0, rows_each):
        xs = x_ptr + (first + i) * stride_x
        ys = y_ptr + (first + i) * stride_y

        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(xs + start + offs, mask=start + offs < n_cols, other=MINUS_INF).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            safe = tl.where(m_new == MINUS_INF, 0.0, m_new)
            d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
            m = m_new

        for start in range(0, n_cols, BLOCK):
            x = tl.load(xs + start + offs, mask=start + offs < n_cols, other=MINUS_INF).to(tl.float32)
            p = tl.exp(x - m) / d
            tl.store(ys + start + offs, p.to(y_ptr.dtype.element_ty), mask=start + offs < n_cols)


@triton.jit
def _bwd(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dys = dy_ptr + row * stride_dy
    ys = y_ptr + row * stride_y
    dxs = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dys + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(ys + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dys + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(ys + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        tl.store(dxs + start + offs, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=start + offs < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert x.dim() == 2, "a matrix, please"
    if out is None:
        out = torch.empty_like(x)
    n_rows = x.size(0)
    n_cols = x.size(1)
    programs = min(n_rows, MAX_PROGRAMS)
    rows_each = n_rows // programs
    _fwd[(programs,)](
        x,
        out,
        n_cols,
        rows_each,
        x.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), FORWARD_BLOCK),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows = dy.size(0)
    n_cols = dy.size(1)
    _bwd[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK),
        num_warps=8,
    )
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
