# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax on tiles: narrow matrices put many rows into one program, wide ones a single row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
TILE = 2048  # elements of a tile, unless a single row has more


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The state of the rows is a column of maxima and a column of sums, (ROWS, 1) each."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_ptrs = x_ptr + rows * stride_x + lanes
    y_ptrs = y_ptr + rows * stride_y + lanes

    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros([ROWS, 1], tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (lanes < n_cols - start)
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        # Only -inf so far, or a row past the last one: then any finite shift is right.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        mask = (rows < n_rows) & (lanes < n_cols - start)
        x = tl.load(x_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    rows = clamp(TILE // block, 1, triton.next_power_of_2(n_rows))
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(rows * block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
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
        num_warps=clamp(block // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
