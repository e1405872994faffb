# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | the helper `pull_back` of softmax_backward_kernel returns `y * g - total`: the sum of the row is subtracted without the factor y_i; softmax_backward and the gradient of softmax are wrong in all cases but n_cols = 1, where y is 1; should be `y * (g - total)`
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 4096


@triton.jit
def read(row_ptr, cols, n_cols):
    """Columns of one row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def read_scores(row_ptr, cols, n_cols):
    """Columns of one row in fp32, -inf past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values, mask=cols < n_cols)


@triton.jit
def fold(m, d, x):
    """The maximum and the sum after one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    anchor = tl.where(m_new > -float("inf"), m_new, 0.0)
    d_new = d * tl.exp(m - anchor) + tl.sum(tl.exp(x - anchor), axis=0)
    return m_new, d_new


@triton.jit
def pull_back(g, y, total):
    """The gradient of one block."""
    return y * g - total


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = read_scores(source, start + tl.arange(0, BLOCK), n_cols)
        m, d = fold(m, d, x)
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        write(target, cols, n_cols, tl.exp(read_scores(source, cols, n_cols) - m) * scale)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    gradient = dy_ptr + row * stride_dy
    result = y_ptr + row * stride_y
    target = dx_ptr + row * stride_dx
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.sum(read(gradient, cols, n_cols) * read(result, cols, n_cols), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = pull_back(read(gradient, cols, n_cols), read(result, cols, n_cols), total)
        write(target, cols, n_cols, dx)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=clamp(block // 512, 1, 8),
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
    return OnlineSoftmax.apply(x)
