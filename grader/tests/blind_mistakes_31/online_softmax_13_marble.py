# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In fold, which the forward kernel calls for each block, the guard for -inf looks at the old maximum, `tl.where(m == -float("inf"), 0.0, m_new)`; the old maximum is always -inf in the first block, so its sum is taken relative to 0 and not to m_new, while m becomes m_new. A row of one block then sums to exp(-m) instead of 1, longer ones are wrong too; every case shows it (d overflows for large x, and is 0 for rows far below 0). The condition should be `m_new == -float("inf")`.
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def fold(m, d, x):
    """Take a block of a row into its maximum m and its sum d."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m == -float("inf"), 0.0, m_new)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=lanes < n_cols - start, other=-float("inf"))
        m, d = fold(m, d, x.to(tl.float32))
    for start in range(0, n_cols, BLOCK):
        in_row = lanes < n_cols - start
        x = tl.load(x_ptrs + start, mask=in_row, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=in_row)


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
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        in_row = lanes < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=in_row, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=in_row, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        in_row = lanes < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=in_row, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=in_row, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=in_row)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size(0), x.size(1)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 4 if block >= 2048 else 2 if block >= 512 else 1
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.size(0), dy.size(1)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 8 if block >= 2048 else 4
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
