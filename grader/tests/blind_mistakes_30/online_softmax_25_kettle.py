# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward passes `EVEN=n_cols % NARROWEST == 0` (128) where the width of the block counts: for a multiple of 128 that is no multiple of BLOCK (1536 columns in a block of 2048, 24576 in blocks of 16384) the kernel loads and stores without a mask past the end of the row, so the sum is wrong and dx is written beyond the row; should be `n_cols % block == 0`
import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
NARROWEST = 128


@triton.jit
def fetch(row_ptr, cols, n_cols, EVEN: tl.constexpr):
    if EVEN:
        block = tl.load(row_ptr + cols)
    else:
        block = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0)
    return block.to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = softmax(x) for the row of this program."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, tl.exp(x - m) / d, mask=cols < n_cols)


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
    EVEN: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) for the row of this program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(fetch(dy_row_ptr, cols, n_cols, EVEN) * fetch(y_row_ptr, cols, n_cols, EVEN), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = fetch(dy_row_ptr, cols, n_cols, EVEN)
        y = fetch(y_row_ptr, cols, n_cols, EVEN)
        dx = y * (dy - s)
        if EVEN:
            tl.store(dx_row_ptr + cols, dx)
        else:
            tl.store(dx_row_ptr + cols, dx, mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), NARROWEST, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), NARROWEST, BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        EVEN=n_cols % NARROWEST == 0,
        num_warps=warps,
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
