# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel works on tiles of (ROWS, BLOCK), but subtracts the sums without a column axis: `y * (dy - s)` has shapes (4, BLOCK) and (4,), which do not broadcast (BLOCK is at least 16), so Triton refuses the kernel in every case of softmax_backward and of the gradient of softmax; should be `dy - s[:, None]`
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 2048
ROWS = 4


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        if m_new != -float("inf"):
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + offs, tl.exp(x - m) / d, mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
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
    """A program owns ROWS rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + rows[:, None] * stride_dy + cols[None, :]
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]
    dx_ptrs = dx_ptr + rows[:, None] * stride_dx + cols[None, :]
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = (rows[:, None] < n_rows) & (start + cols[None, :] < n_cols)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=1)
    for start in range(0, n_cols, BLOCK):
        mask = (rows[:, None] < n_rows) & (start + cols[None, :] < n_cols)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx, mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 128, 4, 16),
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
