# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `kept_block_kernel`, `last = n_cols // BLOCK * BLOCK` must be `(n_cols - 1) // BLOCK * BLOCK`: where n_cols is a multiple of the block (1, 128, 4096, 24576, 131072) the last block is never stored. (2) `LOWEST = tl.constexpr(-65504.0)`, used as the first maximum and for the lanes past the end, must be the lowest number of fp32, -3.4028234663852886e38: rows that lie wholly below -65504 (fp32, bf16) become 0, or NaN without masked lanes, and rows of fp16 at -65504 count the masked lanes.
"""Softmax that keeps the last block of a row in registers and reads the others again."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 16384
LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-65504.0)  # finite, so that no difference of two maxima is NaN


@triton.jit
def power(x):
    """exp(x) by way of exp2."""
    return tl.exp2(x * LOG2E)


@triton.jit
def kept_block_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One program a row: the first sweep ends with the last block, which need not be read twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = tl.full([BLOCK], LOWEST, tl.float32)
    m = tl.max(x, axis=0)
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=LOWEST).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * power(m - m_new) + tl.sum(power(x - m_new), axis=0)
        m = m_new

    last = n_cols // BLOCK * BLOCK
    cols = last + lanes
    y = power(x - m) / d
    tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)

    for start in range(0, n_cols - BLOCK, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols).to(tl.float32)
        y = power(x - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty))


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s = the sum of y * dy over the row; one program a row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
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
    kept_block_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
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
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 32),
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
