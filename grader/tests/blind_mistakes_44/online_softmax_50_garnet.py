# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: each lane keeps a maximum and a sum of its own and the lanes meet once behind the loop; block widths come from `triton.heuristics`; the gradient kernel takes both strides of dy (int64 offsets for columns), so autograd's dy is never copied, whether expanded, transposed or spread.
"""Softmax over rows of any length, its gradient, and both as an autograd function.

Every lane of a program keeps a maximum and a sum of its own over the columns that it sees; the lanes meet once,
behind the loop. The gradient kernel takes the incoming gradient as it comes, with any distance between columns.
"""

import torch
import triton
import triton.language as tl

LANES = 4096  # columns that a program looks at together
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_of(x):
    """e to the x, for differences to a maximum."""
    return tl.exp2(x * LOG2E)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), LANES)})
@triton.jit
def lanewise_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = softmax of a row of x; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(tops, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        sums = sums * exp_of(tops - shift) + exp_of(x - shift)
        tops = higher
    top = tl.max(tops, axis=0)  # finite, as a row has a finite value; lanes without one stay at -inf
    total = tl.sum(sums * exp_of(tops - top), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = exp_of(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), LANES)})
@triton.jit
def lanewise_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, step_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum y * dy); program i has row i. Columns of dy lie step_dy elements apart."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        places = cols.to(tl.int64) * step_dy
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dy = tl.load(dy_row + places, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        sums += y * dy
    total = tl.sum(sums, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        places = cols.to(tl.int64) * step_dy
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dy = tl.load(dy_row + places, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def warps_for(n_cols: int) -> int:
    """1 to 8 warps, of 512 columns each."""
    return max(min(triton.next_power_of_2(n_cols) // 512, 8), 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    lanewise_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), num_warps=warps_for(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy in any layout and the result y; into `out` if given."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    lanewise_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        num_warps=warps_for(n_cols),
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
        """dx from dy, whose strides go to the kernel."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
