# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_rows`, `acc = tl.zeros([BLOCK], dtype=tl.float32)` stands before the loop over the rows of a program; it should be set anew at the start of each row, inside `for row in ...`. The sum s of a program's second and later rows also holds the sums of the rows before. With four rows for each program, all but the first quarter of the rows are wrong in softmax_backward and the gradient of softmax, whenever there is more than one row.
"""Softmax and its gradient with few programs: each walks over several rows, a fixed distance apart."""

import torch
import triton
import triton.language as tl

ROWS_EACH = 4  # rows for one program


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Of P programs, p takes rows p, p + P, p + 2 * P and so on."""
    LOG2E: tl.constexpr = 1.4426950408889634
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        x_row = x_ptr + row.to(tl.int64) * stride_x
        y_row = y_ptr + row.to(tl.int64) * stride_y

        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + offs < n_cols
            x = tl.load(x_row + start + offs, mask=mask, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            safe = tl.where(m_new > -float("inf"), m_new, 0.0)
            d = d * tl.exp2((m - safe) * LOG2E) + tl.sum(tl.exp2((x - safe) * LOG2E), axis=0)
            m = m_new

        for start in range(0, n_cols, BLOCK):
            mask = start + offs < n_cols
            x = tl.load(x_row + start + offs, mask=mask, other=-float("inf")).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / d
            tl.store(y_row + start + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gradient_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """The same rows for program p. Each lane adds up its own columns; the lanes are added at the end."""
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        dy_row = dy_ptr + row.to(tl.int64) * stride_dy
        y_row = y_ptr + row.to(tl.int64) * stride_y
        dx_row = dx_ptr + row.to(tl.int64) * stride_dx

        for start in range(0, n_cols, BLOCK):
            mask = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + offs, mask=mask, other=0.0).to(tl.float32)
            acc += dy * y
        s = tl.sum(acc, axis=0)

        for start in range(0, n_cols, BLOCK):
            mask = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + offs, mask=mask, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def plan(n_rows: int, n_cols: int, widest: int):
    """How many programs to start, and how many columns they take at a time."""
    return triton.cdiv(n_rows, ROWS_EACH), min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    programs, block = plan(n_rows, n_cols, 8192)
    softmax_rows[(programs,)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx from dy and the result y of the forward pass, each (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    programs, block = plan(n_rows, n_cols, 4096)
    gradient_rows[(programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 8),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax for autograd."""

    @staticmethod
    def forward(ctx, x):
        """Compute and keep y."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute dx; dy may be expanded or transposed."""
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of the rows of x."""
    return OnlineSoftmax.apply(x)
