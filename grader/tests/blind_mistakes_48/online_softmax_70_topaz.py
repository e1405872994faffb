# labs/lab2_online_softmax/online_softmax.py | right | At most 2112 programs that walk over rows with an int64 `while` loop; rows that fit a block stay in registers, longer ones are swept a second time from the last block to the first; exp2 with log2(e).
"""Online softmax and its gradient; the second sweep over a row runs backwards, from the blocks read last."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
PROGRAMS = 132 * 16  # at most; each takes every PROGRAMS-th row


@triton.jit
def softmax_there_and_back(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, FITS: tl.constexpr
):
    """y of the program's rows. FITS: one block holds a row, which then stays in registers."""
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        if FITS:
            x = tl.load(x_row + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
            numerator = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
            y = numerator / tl.sum(numerator, axis=0)
            tl.store(y_row + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
        else:
            m = -float("inf")
            d = 0.0
            for k in range(0, blocks):
                cols = k * BLOCK + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d *= tl.exp2((m - shift) * LOG2E)
                d += tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
                m = m_new
            for k in range(0, blocks):
                cols = (blocks - 1 - k) * BLOCK + lanes
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp2((x - m) * LOG2E) / d
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def gradient_there_and_back(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,
):
    """dx of the program's rows, likewise."""
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        if FITS:
            inside = lanes < n_cols
            dy = tl.load(dy_row + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + lanes, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - tl.sum(dy * y, axis=0))
            tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        else:
            products = tl.zeros((BLOCK,), tl.float32)
            for k in range(0, blocks):
                cols = k * BLOCK + lanes
                dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                products += dy * y
            s = tl.sum(products, axis=0)
            for k in range(0, blocks):
                cols = (blocks - 1 - k) * BLOCK + lanes
                dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    softmax_there_and_back[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        FITS=n_cols <= block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    gradient_there_and_back[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        FITS=n_cols <= block,
        num_warps=min(max(block // 512, 1), 16),
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
