# labs/lab2_online_softmax/online_softmax.py | two mistakes | Both in softmax_backward. (1) The host's `programs = max(n_rows // rows, 1)` rounds down and should be `triton.cdiv(n_rows, rows)`: the last rows stay unwritten for rows of at most 1024 columns where n_rows is larger than rows per program and no multiple of it, as 5 x 127, 29 x 1001, 149 x 3. (2) In the first loop of `gradient_of_row`, dy and y are not converted before `s += tl.sum(y * dy, axis=0)`: products and sum are in fp16 or bf16; they should be converted with `.to(tl.float32)` after each load. It shows as lost precision in fp16 and bf16.
"""Online softmax and its gradient; a program takes several rows, one after another, where rows are short."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def softmax_of_row(x_row, y_row, n_cols, BLOCK: tl.constexpr):
    """One row of y from one row of x."""
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row + cols, y.to(y_row.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_of_row(dy_row, y_row, dx_row, n_cols, BLOCK: tl.constexpr):
    """One row of dx = y * (dy - s), where s is the sum of y * dy."""
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_row.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes rows i * ROWS to (i + 1) * ROWS - 1, as far as they exist."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    for k in tl.static_range(ROWS):
        row = first + k
        if row < n_rows:
            softmax_of_row(x_ptr + row * stride_x, y_ptr + row * stride_y, n_cols, BLOCK)


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
    """The gradient of the same rows."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    for k in tl.static_range(ROWS):
        row = first + k
        if row < n_rows:
            gradient_of_row(
                dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx, n_cols, BLOCK
            )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    rows = min(max(2048 // block, 1), 4)
    programs = (n_rows + rows - 1) // rows
    forward_kernel[(programs,)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=8 if block > 4096 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    rows = min(max(2048 // block, 1), 4)
    programs = max(n_rows // rows, 1)
    backward_kernel[(programs,)](
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
