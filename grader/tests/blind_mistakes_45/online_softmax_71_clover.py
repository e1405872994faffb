# labs/lab2_online_softmax/online_softmax.py | corner | `softmax_backward`, kernel `backward_rows`: `products = tl.zeros([BLOCK], tl.float32)` stands before `while row < n_rows`, so the sum of a program's earlier rows is carried into its next row. It should be inside of the while loop. Shows only where there are more than 132 rows (`PROGRAMS`), from row 132 on.
"""Softmax and its gradient with a fixed number of programs, each of which walks over several rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # one for each multiprocessor of an H200
BLOCK_FORWARD = 4096
BLOCK_BACKWARD = 4096


@triton.jit
def forward_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Rows pid, pid + programs, ...; each lane keeps a maximum and a sum of its own columns."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        tops = tl.full([BLOCK], -float("inf"), tl.float32)
        sums = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(tops, x)
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            sums = sums * tl.exp(tops - shift) + tl.exp(x - shift)
            tops = higher
        top = tl.max(tops, axis=0)
        total = tl.sum(sums * tl.exp(tops - top), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - top) / total
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(0)


@triton.jit
def backward_rows(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """The same walk over rows; the products are summed lane by lane, and over the lanes once a row."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    products = tl.zeros([BLOCK], tl.float32)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            products += dy * y
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(0)


def block_and_warps(n_cols: int, widest: int) -> tuple:
    """Width of a block, and warps for it: 8 columns for each thread of a wide row."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, min(max(block // 256, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where it is given."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, BLOCK_FORWARD)
    forward_rows[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax; the result goes to `out` where it is given."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, BLOCK_BACKWARD)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    backward_rows[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, *strides, BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
