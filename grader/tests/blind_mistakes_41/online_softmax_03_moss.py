# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Exercise softmax (its gradient only), kernel `gradient_from_x_kernel`: `stats` is (n_rows, 2) and `forward_kernel` stores m at `row * 2` and d at `row * 2 + 1`, but the gradient reads `m = tl.load(stats_ptr + row)` and `d = tl.load(stats_ptr + n_rows + row)`; it should be `stats_ptr + row * 2` and `stats_ptr + row * 2 + 1`. dx is wrong for every matrix of more than one row; y, `softmax_forward` and `softmax_backward` are right.
"""Online softmax, its gradient from y, and an autograd function whose gradient starts from x again.

The autograd function keeps the maximum and the sum of each row in fp32, so that its gradient need not start
from a result that was rounded to 16 bits.
"""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def load_columns(row_ptr, cols, n_cols, other: tl.constexpr):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def forward_kernel(
    x_ptr,
    y_ptr,
    stats_ptr,  # (n_rows, 2) fp32, or None where nobody asks for them
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_columns(x_ptr, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if stats_ptr is not None:
        tl.store(stats_ptr + row * 2, m)
        tl.store(stats_ptr + row * 2 + 1, d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_columns(x_ptr, cols, n_cols, -float("inf"))
        y = tl.exp(x - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_from_y_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(load_columns(dy_ptr, cols, n_cols, 0.0) * load_columns(y_ptr, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load_columns(y_ptr, cols, n_cols, 0.0)
        dx = y * (load_columns(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_from_x_kernel(
    dy_ptr, x_ptr, stats_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    m = tl.load(stats_ptr + row)
    d = tl.load(stats_ptr + n_rows + row)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_columns(x_ptr, cols, n_cols, -float("inf")) - m) / d
        s += tl.sum(load_columns(dy_ptr, cols, n_cols, 0.0) * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_columns(x_ptr, cols, n_cols, -float("inf")) - m) / d
        dx = y * (load_columns(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def sizes(n_cols: int) -> tuple:
    """Width of a block, and warps of a program."""
    block = min(WIDEST, triton.next_power_of_2(n_cols))
    return block, max(1, block // 512)


def launch_forward(x, out, stats):
    n_rows, n_cols = x.shape
    block, warps = sizes(n_cols)
    forward_kernel[(n_rows,)](
        x, out, stats, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_forward(x, out, None)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = sizes(n_cols)
    gradient_from_y_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax whose gradient is computed from x and from the maximum and the sum of each row."""

    @staticmethod
    def forward(ctx, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        stats = torch.empty((x.shape[0], 2), dtype=torch.float32, device=x.device)
        launch_forward(x, y, stats)
        ctx.save_for_backward(x, stats)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, stats = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        n_rows, n_cols = x.shape
        block, warps = sizes(n_cols)
        gradient_from_x_kernel[(n_rows,)](
            dy,
            x,
            stats,
            dx,
            n_rows,
            n_cols,
            dy.stride(0),
            x.stride(0),
            dx.stride(0),
            BLOCK=block,
            num_warps=warps,
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
