# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `load_scaled`, `x.to(tl.float32) * LOG2E` scales before the maximum is subtracted; it should be `tl.exp2((x - m) * LOG2E)`: rows far from 0 (values near 16384 that differ by little) lose digits. (2) In `softmax_forward`, `rows_each = n_rows // programs` should be `triton.cdiv(n_rows, programs)`: with more than 132 rows that are no multiple of 132 (149 rows) the last n_rows % 132 rows are never written.
"""Online softmax with persistent programs, each of which owns a run of rows; gradient and autograd function."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # one for each multiprocessor of an H200
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_scaled(row_ptr, cols, n_cols):
    """Columns of a row as exponents of 2, in fp32; -inf behind the end of the row."""
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32) * LOG2E


@triton.jit
def persistent_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, rows_each, BLOCK: tl.constexpr
):
    """Softmax of rows_each rows one after another, from row pid * rows_each on."""
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    offs = tl.arange(0, BLOCK)
    for i in range(0, rows_each):
        row = first + i
        if row < n_rows:
            x_row = x_ptr + row * stride_x
            y_row = y_ptr + row * stride_y
            m = -float("inf")
            d = 0.0
            for start in range(0, n_cols, BLOCK):
                z = load_scaled(x_row, start + offs, n_cols)
                m_new = tl.maximum(m, tl.max(z, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d = d * tl.exp2(m - shift) + tl.sum(tl.exp2(z - shift), axis=0)
                m = m_new
            for start in range(0, n_cols, BLOCK):
                cols = start + offs
                y = tl.exp2(load_scaled(x_row, cols, n_cols) - m) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    programs = min(n_rows, PROGRAMS)
    rows_each = n_rows // programs
    persistent_softmax_kernel[(programs,)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), rows_each,
        BLOCK=block, num_warps=min(max(block // 512, 1), 16),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=min(max(block // 512, 4), 32),
    )  # fmt: skip
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
