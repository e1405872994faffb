# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lane_softmax_kernel`, `row_sum = tl.sum(lane_sum, axis=0)` adds sums that are each relative to the maximum of its own lane; it should be `tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)`. In a row of one block d is simply the number of finite columns, so rows sum to less than 1; right only for one column or constant rows.
"""Row softmax where each lane keeps a maximum and a sum of its own; gradient and autograd function."""

import torch
import triton
import triton.language as tl

LANES = 4096  # maxima, sums and columns of a block are alive together
NEG_INF = tl.constexpr(-float("inf"))


@triton.jit
def lane_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16
    y_ptr,  # like x
    n_cols,
    x_stride,
    y_stride,
    BLOCK: tl.constexpr,
):
    """Softmax of one row; lane j of a program sees the columns j, j + BLOCK, j + 2 * BLOCK and so on."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    lane = tl.arange(0, BLOCK)

    lane_max = tl.full((BLOCK,), NEG_INF, dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=NEG_INF, eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        base = tl.where(new_max == NEG_INF, 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - base) + tl.exp(x - base)
        lane_max = new_max

    # No reduction was needed inside of the loop: the lanes come together once, here.
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum, axis=0)
    scale = 1.0 / row_sum

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=NEG_INF, eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - row_max) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def lane_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s) for one row, s = sum of y * dy; lanes as above."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += y * dy
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def shape_of_program(n_cols: int):
    """Lanes and warps of a program."""
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    return lanes, min(max(lanes // 512, 1), 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    lanes, warps = shape_of_program(n_cols)
    lane_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=lanes, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    lanes, warps = shape_of_program(n_cols)
    lane_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=lanes, num_warps=warps
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
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
