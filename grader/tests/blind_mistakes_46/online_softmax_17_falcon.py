# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `online_softmax_kernel`, `tl.sum(tl.exp(x - finite(top)), axis=0)` is relative to the maximum of the block and not to that of the columns so far; it should be `finite(m_new)`: d is too large in rows longer than 16384 in which a later block has a lower maximum. (2) `at = row * stride` is used for y as well, and `softmax_forward` passes `x.stride(0)` alone; y needs `out.stride(0)`: wrong places where the row strides of x and the result differ (padded x or padded out, more than one row).
"""Online softmax over rows, its gradient, and both as an autograd function; widths chosen by triton.heuristics."""

import torch
import triton
import triton.language as tl


def _forward_block(args):
    """Columns of a block of the forward pass."""
    return min(triton.next_power_of_2(args["n_cols"]), 16384)


def _forward_warps(args):
    """Few warps, so that several rows share a multiprocessor."""
    return 8 if args["BLOCK"] == 16384 else min(max(args["BLOCK"] // 1024, 1), 4)


def _backward_block(args):
    """Columns of a block of the backward pass."""
    return min(triton.next_power_of_2(args["n_cols"]), 16384)


def _backward_warps(args):
    """Twice the values of the forward pass are alive."""
    return min(max(args["BLOCK"] // 512, 4), 32)


@triton.jit
def finite(top):
    """A shift for exponents: the maximum, or 0 where all values are -inf, whose exp is 0 with any shift."""
    return tl.where(top == -float("inf"), 0.0, top)


@triton.heuristics({"BLOCK": _forward_block, "num_warps": _forward_warps})
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    at = row * stride  # where the row begins
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        x = tl.load(x_ptr + at + start + lanes, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        top = tl.max(x, axis=0)
        m_new = tl.maximum(m, top)
        d = d * tl.exp(m - finite(m_new)) + tl.sum(tl.exp(x - finite(top)), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        x = tl.load(x_ptr + at + start + lanes, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + at + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.heuristics({"BLOCK": _backward_block, "num_warps": _backward_warps})
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
