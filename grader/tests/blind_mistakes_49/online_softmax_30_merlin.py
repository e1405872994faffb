# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lse_softmax_kernel`, `c = tl.log(s)` must be `c = tl.log2(s)`, as c is subtracted in an exponent of 2 (`tl.exp2((x - m) * LOG2E - c)`). Every row is too large by the factor s ** (1 - ln 2); only rows with s = 1 (one column, or one value that towers over the rest) are right.
"""Row softmax by a log-sum-exp in base 2, its gradient, and the autograd function of both."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def fold(m, s, x):
    """Maximum and sum of powers after the block x."""
    top = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(top == -float("inf"), 0.0, top)
    s = s * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    return top, s


@triton.jit
def lse_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One row for each program: y = 2 ** ((x - m) log2(e) - c), where c is found in a first sweep."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        m, s = fold(m, s, x.to(tl.float32))

    c = tl.log(s)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * LOG2E - c)
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, whose columns are contiguous; to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    lse_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 32),
    )  # fmt: skip
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
