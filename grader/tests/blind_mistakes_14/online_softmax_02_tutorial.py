# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel, `avg = s / n_cols` divides the sum of y * dy by the number of columns and dx uses that mean; dx should be `y * (dy - s)` with the undivided sum.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

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
    # The rows of the softmax are independent, so we parallelize across those.
    row = tl.program_id(axis=0).to(tl.int64)
    # The stride represents how much we need to increase the pointer to advance 1 row.
    row_start_ptr = x_ptr + row * stride_x
    out_start_ptr = y_ptr + row * stride_y
    # Running maximum and running denominator.
    row_max = -float("inf")
    denominator = 0.0
    for start in range(0, n_cols, BLOCK):
        col_offsets = start + tl.arange(0, BLOCK)
        # Using a mask since BLOCK may be greater than what is left of the row.
        mask = col_offsets < n_cols
        block = tl.load(row_start_ptr + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(block, axis=0))
        # If everything was -inf so far, any finite shift will do.
        safe_max = tl.where(new_max == -float("inf"), 0.0, new_max)
        # Bring the old denominator to the new scale, then add this block.
        denominator = denominator * tl.exp(row_max - safe_max)
        denominator += tl.sum(tl.exp(block - safe_max), axis=0)
        row_max = new_max
    for start in range(0, n_cols, BLOCK):
        col_offsets = start + tl.arange(0, BLOCK)
        mask = col_offsets < n_cols
        block = tl.load(row_start_ptr + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
        # Subtract maximum for numerical stability.
        numerator = tl.exp(block - row_max)
        softmax_output = numerator / denominator
        # Write back output.
        tl.store(out_start_ptr + col_offsets, softmax_output.to(y_ptr.dtype.element_ty), mask=mask)


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
    # First go over the row once for the term that all columns have in common.
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        col_offsets = start + tl.arange(0, BLOCK)
        mask = col_offsets < n_cols
        dy = tl.load(dy_row_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    avg = s / n_cols
    # Then compute the gradient and write it back.
    for start in range(0, n_cols, BLOCK):
        col_offsets = start + tl.arange(0, BLOCK)
        mask = col_offsets < n_cols
        dy = tl.load(dy_row_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - avg)
        tl.store(dx_row_ptr + col_offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    # The block size is the smallest power of two greater than the number of columns, up to a limit.
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    num_warps = 8 if BLOCK_SIZE == FORWARD_BLOCK else clamp(BLOCK_SIZE // 1024, 1, 4)
    # Enqueue kernel. The 1D launch grid is simple: we have one kernel instance per row of the input matrix.
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=BLOCK_SIZE,
        num_warps=num_warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK_SIZE = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=BLOCK_SIZE,
        num_warps=clamp(BLOCK_SIZE // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
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
