# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `forward_kernel`, both `tl.log(total)` (passed in the WHOLE_ROW branch, and `log_sum = tl.log(total)` in the other) are natural logarithms, but `store_probabilities` subtracts them in an exponent of base 2: it should be `tl.log2(total)`. Every row is d ** 0.307 times too large, so wrong wherever d is not 1 (all but one column or one dominating value).
"""Softmax over rows of any length in base 2: the division by the sum becomes a subtraction in the exponent."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def to_base_two(t):
    """exp(t) = 2 ** to_base_two(t)."""
    return t * 1.4426950408889634


@triton.jit
def load_scores(row_ptr, cols, n_cols, POLICY: tl.constexpr):
    """A block of scores in fp32, -inf past the end of the row."""
    block = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=POLICY)
    return block.to(tl.float32)


@triton.jit
def store_probabilities(row_ptr, cols, n_cols, scores, top, log_sum):
    """2 ** (scores - top - log_sum), where scores and top are subtracted first, so that large ones keep their digits."""
    exponent = to_base_two(scores - top) - log_sum
    tl.store(row_ptr + cols, tl.exp2(exponent).to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    WHOLE_ROW: tl.constexpr,
):
    """Program i owns row i. A row that fits one block is read once and stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if WHOLE_ROW:
        scores = load_scores(x_row_ptr, lanes, n_cols, "evict_first")
        top = tl.max(scores, axis=0)
        total = tl.sum(tl.exp2(to_base_two(scores - top)), axis=0)
        store_probabilities(y_row_ptr, lanes, n_cols, scores, top, tl.log(total))
    else:
        top = -float("inf")
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            scores = load_scores(x_row_ptr, start + lanes, n_cols, "evict_last")
            higher = tl.maximum(top, tl.max(scores, axis=0))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp2(to_base_two(top - shift))
            total += tl.sum(tl.exp2(to_base_two(scores - shift)), axis=0)
            top = higher
        log_sum = tl.log(total)
        for start in range(0, n_cols, BLOCK):
            scores = load_scores(x_row_ptr, start + lanes, n_cols, "evict_first")
            store_probabilities(y_row_ptr, start + lanes, n_cols, scores, top, log_sum)


@triton.jit
def load_or_zero(row_ptr, cols, n_cols):
    """A block in fp32, 0 past the end of the row."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE_ROW: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE_ROW:
        dy = load_or_zero(dy_row_ptr, lanes, n_cols)
        y = load_or_zero(y_row_ptr, lanes, n_cols)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy = load_or_zero(dy_row_ptr, start + lanes, n_cols)
            y = load_or_zero(y_row_ptr, start + lanes, n_cols)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dx = load_or_zero(y_row_ptr, cols, n_cols) * (load_or_zero(dy_row_ptr, cols, n_cols) - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def new_like(x: torch.Tensor) -> torch.Tensor:
    """A new contiguous matrix of the shape and dtype of x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = new_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE_ROW=n_cols <= block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = new_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE_ROW=n_cols <= block,
        num_warps=clamp(block // 512, 1, 16),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
