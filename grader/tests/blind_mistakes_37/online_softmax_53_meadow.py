# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward keeps the sum s of y * dy of each row in a scratch tensor `sums = dy.new_empty((n_rows,))`, which has the dtype of dy, so s is rounded to fp16 or bf16 between the two kernels. It should be allocated with dtype=torch.float32. Shows only in fp16 and bf16, as an error of precision: elements with dy near s (strong cancellation in dy - s) are off by up to half a unit of s times y; fp32 is right.
"""Row softmax; its gradient takes two kernels, one for the sums of the rows and one over all tiles."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
TILE_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    WHOLE_ROW: tl.constexpr,
):
    """Program i owns row i; a row that fits one block is read only once."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    offs = tl.arange(0, BLOCK)
    if WHOLE_ROW:
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + offs, e / tl.sum(e, axis=0), mask=offs < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_ptr + cols, tl.exp(x - m) / d, mask=cols < n_cols)


@triton.jit
def row_sums_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,  # (n_rows,)
    n_cols,
    stride_dy,
    stride_y,
    BLOCK: tl.constexpr,
):
    """sums[i] = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    offs = tl.arange(0, BLOCK)
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        partial += y * dy
    tl.store(sums_ptr + row, tl.sum(partial, axis=0))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sums[i]) for one block of row i; the block is the second coordinate of the program."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    s = tl.load(sums_ptr + row).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, y * (dy - s), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size(0), x.size(1)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE_ROW=n_cols <= block,
        num_warps=8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.size(0), dy.size(1)
    width = triton.next_power_of_2(n_cols)
    sums = dy.new_empty((n_rows,))

    block = min(width, BACKWARD_BLOCK)
    row_sums_kernel[(n_rows,)](
        dy,
        y,
        sums,
        n_cols,
        dy.stride(0),
        y.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )

    block = min(width, TILE_BLOCK)
    softmax_backward_kernel[(n_rows, triton.cdiv(n_cols, block))](
        dy,
        y,
        sums,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4,
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
