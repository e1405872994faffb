# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `two_chain_softmax_kernel`, second loop, `both = tl.join(tl.exp(left - m), tl.exp(right - m))` followed by `tl.reshape(both, [2 * HALF])` interleaves the halves (join adds a new last dimension) where they should stand one after the other; it should be `tl.reshape(tl.permute(both, (1, 0)), [2 * HALF])`. Maximum and sum are right, the values stand at wrong columns (and zeros of lanes past the end come into the row): all cases with more than one column.
"""Softmax over rows of any length: two independent running maxima and sums, merged at the end of the row."""

import torch
import triton
import triton.language as tl

WIDEST_HALF = 4096


@triton.jit
def load_row(row_ptr, cols, n_cols, EVICT: tl.constexpr):
    """Columns of a row in fp32, -inf past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=EVICT).to(tl.float32)


@triton.jit
def fold(x, m, d):
    """Maximum m and sum d, relative to m, of what came before, with the block x added."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def two_chain_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, HALF: tl.constexpr):
    """Each block has a left and a right half. Neither chain waits for the other's reductions."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, HALF)

    m_left = -float("inf")
    d_left = 0.0
    m_right = -float("inf")
    d_right = 0.0
    for start in range(0, n_cols, 2 * HALF):
        left = load_row(x_row, start + lanes, n_cols, "evict_last")
        right = load_row(x_row, start + HALF + lanes, n_cols, "evict_last")
        m_left, d_left = fold(left, m_left, d_left)
        m_right, d_right = fold(right, m_right, d_right)

    m = tl.maximum(m_left, m_right)
    d = d_left * tl.exp(m_left - m) + d_right * tl.exp(m_right - m)

    for start in range(0, n_cols, 2 * HALF):
        left = load_row(x_row, start + lanes, n_cols, "evict_first")
        right = load_row(x_row, start + HALF + lanes, n_cols, "evict_first")
        # Both halves leave in one wide store.
        both = tl.join(tl.exp(left - m), tl.exp(right - m))
        y = tl.reshape(both, [2 * HALF]) / d
        cols = start + tl.arange(0, 2 * HALF)
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def softmax_grad_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s), s = sum of y * dy over the row; one partial sum for each lane until the row ends."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        partial += g * y
    s = tl.sum(partial, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    half = min(max(triton.next_power_of_2(n_cols) // 2, 64), WIDEST_HALF)
    two_chain_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), HALF=half, num_warps=min(max(half // 512, 1), 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(max(triton.next_power_of_2(n_cols), 128), 8192)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_grad_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=min(max(block // 512, 4), 16))
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
