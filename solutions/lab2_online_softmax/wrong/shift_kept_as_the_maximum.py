"""EXPECT WRONG/NONFINITE from softmax_forward, hint 3: after a block of -inf the maximum is taken for 0"""

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
        # A lane past the end of the row must leave both unchanged.
        offs = start + tl.arange(0, BLOCK)
        # The row is read again below: keep it in L2 if it can be kept.
        x = tl.load(
            x_row_ptr + offs, mask=offs < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # While all values are -inf, any finite shift gives exp(-inf) = 0; -inf - -inf would give NaN.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = shift
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + offs, mask=offs < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty)
        tl.store(y_row_ptr + offs, y, mask=offs < n_cols, eviction_policy="evict_first")


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
    # Products of two fp16 numbers lose half of their digits in fp16: multiply and add in fp32.
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        # Both rows are read again below: keep them in L2 if they can be kept.
        dy = tl.load(dy_row_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dot += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        dy = tl.load(dy_row_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - dot)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row_ptr + offs, dx, mask=mask, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out`, of the same shape,
    where one is given. Each row holds at least one finite value; -inf is allowed beside it. After Milakov and
    Gimelshein, arXiv:1805.02867, algorithm 3.
    """
    if out is None:
        out = torch.empty_like(x)
    # Few warps, so that several rows share a multiprocessor: one loads while another computes.
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    num_warps = clamp(block // 1024, 1, 4) if block < FORWARD_BLOCK else 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    # Twice the values of the forward pass are alive at a time: more warps, fewer registers each.
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    num_warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
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
        # The gradient of a sum is expanded, with stride 0 between columns: make it contiguous.
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
