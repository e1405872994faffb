# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `softmax`, in `OnlineSoftmax.backward`: `_launch_backward(y, dy.contiguous(), dx)` has the arguments exchanged, as the helper is `_launch_backward(dy, y, dx)`; it computes `dy * (y - s)`. It should be `_launch_backward(dy.contiguous(), y, dx)`. Shows in all cases of `softmax` (gradient); `softmax_backward` and the forward are right.
"""Softmax of rows and its gradient, with groups of neighbouring rows for each program."""

import torch
import triton
import triton.language as tl

GROUP = 4  # rows of one program, one after another
WIDEST = 8192


@triton.jit
def _softmax_of_row(x_row, y_row, n_cols, BLOCK: tl.constexpr):
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_row.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def _gradient_of_row(dy_row, y_row, dx_row, n_cols, BLOCK: tl.constexpr):
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_row.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, GROUP: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * GROUP
    for i in range(GROUP):
        row = first + i
        if row < n_rows:
            _softmax_of_row(x_ptr + row * stride_x, y_ptr + row * stride_y, n_cols, BLOCK)


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
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * GROUP
    for i in range(GROUP):
        row = first + i
        if row < n_rows:
            _gradient_of_row(
                dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx, n_cols, BLOCK
            )


def _grid_and_options(n_rows: int, n_cols: int, per_warp: int) -> tuple:
    """Short rows come in groups, rows of 1024 columns and more one by one."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    group = GROUP if n_cols < 1024 else 1
    options = {"BLOCK": block, "GROUP": group, "num_warps": min(max(block // per_warp, 1), 16)}
    return (triton.cdiv(n_rows, group),), options


def _launch_backward(dy, y, dx):
    n_rows, n_cols = dx.shape
    grid, options = _grid_and_options(n_rows, n_cols, 512)
    backward_kernel[grid](
        dy, y, dx, n_rows, n_cols, dy.stride(0), y.stride(0), dx.stride(0), **options
    )
    return dx


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    grid, options = _grid_and_options(n_rows, n_cols, 1024)
    forward_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    return _launch_backward(dy, y, out)


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y, memory_format=torch.contiguous_format)
        return _launch_backward(y, dy.contiguous(), dx)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
