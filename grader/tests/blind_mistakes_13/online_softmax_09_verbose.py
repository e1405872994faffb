# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward saves `(x, y)`, but backward unpacks `y, _ = ctx.saved_tensors`, so the gradient is computed from the input x in place of the result y; it should be `_, y = ctx.saved_tensors` (or only y saved).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

My notes:
- The row is read twice. The first time we find out maximum and sum together, the second time we can write the
  result. The second read comes from L2, so it is nearly free.
- All arithmetic is fp32. Only the loads and stores see the dtype of the tensors.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for start in range(0, n_cols, BLOCK):
        # 1. load. evict_last: please keep this in the cache, it is needed again below.
        column = start + tl.arange(0, BLOCK)
        in_row = column < n_cols
        x = tl.load(
            x_row_ptr + column, mask=in_row, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        # 2. the new maximum
        block_max = tl.max(x, axis=0)
        m_new = tl.maximum(m, block_max)
        # 3. -inf minus -inf is NaN, so in this case take 0 as the shift. exp(-inf - 0) is 0, as it should be.
        all_masked = m_new == -float("inf")
        shift = tl.where(all_masked, 0.0, m_new)
        # 4. old sum in units of the new maximum, plus what is new
        correction = tl.exp(m - shift)
        block_sum = tl.sum(tl.exp(x - shift), axis=0)
        d = d * correction + block_sum
        # 5. only now, because 4 needs the old maximum
        m = m_new
    for start in range(0, n_cols, BLOCK):
        column = start + tl.arange(0, BLOCK)
        in_row = column < n_cols
        x = tl.load(
            x_row_ptr + column, mask=in_row, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row_ptr + column, y.to(y_ptr.dtype.element_ty), mask=in_row, eviction_policy="evict_first"
        )


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    # The whole sum first: every dx of the row needs it.
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        column = start + tl.arange(0, BLOCK)
        in_row = column < n_cols
        dy = tl.load(dy_row_ptr + column, mask=in_row, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + column, mask=in_row, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        column = start + tl.arange(0, BLOCK)
        in_row = column < n_cols
        dy = tl.load(dy_row_ptr + column, mask=in_row, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + column, mask=in_row, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(
            dx_row_ptr + column, dx.to(dx_ptr.dtype.element_ty), mask=in_row, eviction_policy="evict_first"
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out`, of the same shape,
    where one is given. Each row holds at least one finite value; -inf is allowed beside it.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    # A block has to be a power of two. 16384 is the most that fits into registers.
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 4)
    if block == FORWARD_BLOCK:
        warps = 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        y = softmax_forward(x)
        # Both the input and the output, as in the examples of the PyTorch documentation.
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        y, _ = ctx.saved_tensors
        # The gradient of a sum is expanded: all strides are 0. The kernel wants columns side by side.
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
