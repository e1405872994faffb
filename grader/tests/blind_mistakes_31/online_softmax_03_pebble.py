# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_rows each lane keeps a maximum and a sum relative to its own maximum, and after the loop the sums are added as they are, `total = tl.sum(lane_sum, axis=0)`, though each is relative to another maximum; in a row of one block total is the number of finite columns. Rows sum to less than 1 wherever the maxima of the lanes differ (all rows of more than one column, but constant ones). It should be `tl.sum(lane_sum * tl.exp(lane_max - top), axis=0)`.
"""Online softmax in which each lane runs the recurrence for itself; only the end reduces over lanes."""

import torch
import triton
import triton.language as tl

LANES = 2048


@triton.jit
def softmax_rows(src_ptr, dst_ptr, n_cols, src_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    src = src_ptr + row * src_stride
    dst = dst_ptr + row * dst_stride
    lanes = tl.arange(0, BLOCK)

    lane_max = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = new_max

    # The only two reductions of the row.
    top = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(src + cols, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(dst + cols, (tl.exp(x - top) / total).to(dst_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_rows(g_ptr, y_ptr, dst_ptr, n_cols, g_stride, y_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g_src = g_ptr + row * g_stride
    y_src = y_ptr + row * y_stride
    dst = dst_ptr + row * dst_stride
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(g_src + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_src + cols, mask=inside, other=0.0).to(tl.float32)
        products += g * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(g_src + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_src + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dst + cols, (y * (g - s)).to(dst_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    block = min(triton.next_power_of_2(cols), LANES)
    softmax_rows[(rows,)](x, y, cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=4)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    block = min(triton.next_power_of_2(cols), LANES)
    gradient_rows[(rows,)](
        dy, y, dx, cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=4
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
