# labs/lab2_online_softmax/online_softmax.py | two mistakes | First, in `softmax_backward` the launch passes `dy.stride(0), out.stride(0), y.stride(0)`, but `gradient_pairs_kernel` takes `stride_dy, stride_y, stride_dx`; it should be `dy.stride(0), y.stride(0), out.stride(0)`. Shows where the row strides of y and out differ (padded y or out). Second, in `gradient_pairs_kernel`, behind the pairs (`whole = n_cols // (2 * BLOCK) * (2 * BLOCK)`) only one masked block `rest = whole + lanes` is added to s, but up to 2 * BLOCK - 1 columns may remain; the part beyond one block should be added too. Shows for n_cols mod 8192 > 4096 in rows longer than 4096, as 40000, also contiguous.
"""Online softmax with unrolled loops: two blocks of a row are on their way at a time."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 4096


@triton.jit
def softmax_pairs_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr):
    """Program i owns row i of x and y."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = tl.load(x_ptr + left, mask=left < n_cols, other=-float("inf")).to(tl.float32)
        b = tl.load(x_ptr + right, mask=right < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(a - shift) + tl.exp(b - shift), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_pairs_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, n_cols, BLOCK: tl.constexpr
):
    """Program i owns row i of dy, y and dx. Pairs of whole blocks need no mask; what remains has one."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    even = tl.zeros((BLOCK,), dtype=tl.float32)
    odd = tl.zeros((BLOCK,), dtype=tl.float32)
    whole = n_cols // (2 * BLOCK) * (2 * BLOCK)
    for start in range(0, whole, 2 * BLOCK):
        left = start + lanes
        right = left + BLOCK
        even += tl.load(dy_ptr + left).to(tl.float32) * tl.load(y_ptr + left).to(tl.float32)
        odd += tl.load(dy_ptr + right).to(tl.float32) * tl.load(y_ptr + right).to(tl.float32)
    rest = whole + lanes
    dy = tl.load(dy_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(even + odd + dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_and_warps(n_cols: int, columns_per_warp: int):
    """Width of a block for rows of n_cols columns, and how many warps share it."""
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    return block, max(block // columns_per_warp, 2)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of every row of x."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, 512)
    softmax_pairs_kernel[(n_rows,)](
        x, out, x.stride(0), out.stride(0), n_cols, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and its result y."""
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, 512)
    gradient_pairs_kernel[(n_rows,)](
        dy, y, out, dy.stride(0), out.stride(0), y.stride(0), n_cols, BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, differentiated by softmax_backward."""

    @staticmethod
    def forward(ctx, x):
        """The result is saved: the gradient is made of it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """The gradient for x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """softmax_forward for autograd."""
    return OnlineSoftmax.apply(x)
