# labs/lab2_online_softmax/online_softmax.py | two mistakes | In `online_softmax_kernel`: (1) `row_start = program_id * stride`, with `x.stride(0)` alone sent by `softmax_forward`, also places the rows of y (`row_blocks(y_ptr + row_start, ...)`); y needs `out.stride(0)`. Shows where x and out have different row strides and more than one row (padded x or out, also padded x without out), also for short rows. (2) `tl.where(lanes < n_cols, ...)` lacks the start of the block: it should be `start + lanes < n_cols`; the zeros of the padding are counted in m and d of the last block of rows longer than 8192 that are no multiple of 8192 (16385, 20011, 40000).
"""Online softmax with block pointers, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def row_blocks(row_ptr, n_cols, BLOCK: tl.constexpr):
    """Pointer to the first block of a row with n_cols columns."""
    return tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row_start = tl.program_id(axis=0).to(tl.int64) * stride
    lanes = tl.arange(0, BLOCK)

    x_block = row_blocks(x_ptr + row_start, n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_last")
        # The padding of a block pointer is 0; here it has to be the identity of the maximum.
        x = tl.where(lanes < n_cols, x.to(tl.float32), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_block = tl.advance(x_block, (BLOCK,))

    scale = 1.0 / d
    x_block = row_blocks(x_ptr + row_start, n_cols, BLOCK)
    y_block = row_blocks(y_ptr + row_start, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) * scale
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)

    dy_block = row_blocks(dy_ptr + row * stride_dy, n_cols, BLOCK)
    y_block = row_blocks(y_ptr + row * stride_y, n_cols, BLOCK)
    s = 0.0
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_last")
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))

    dy_block = row_blocks(dy_ptr + row * stride_dy, n_cols, BLOCK)
    y_block = row_blocks(y_ptr + row * stride_y, n_cols, BLOCK)
    dx_block = row_blocks(dx_ptr + row * stride_dx, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_first")
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero", eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
