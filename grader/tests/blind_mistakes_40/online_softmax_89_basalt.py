# labs/lab2_online_softmax/online_softmax.py | error | In `options`, `"num_warps": min(max(triton.cdiv(n_cols, 512), 1), 8)` may be 3, 5, 6 or 7, and Triton takes powers of two only; it should be `triton.next_power_of_2(...)` of it, or follow from the block. `softmax_forward` raises for 1025 to 1536 and for 2049 to 3584 columns, and is right otherwise.
"""Softmax with a fixed number of programs, each of which takes row after row.

Every lane of a block keeps a maximum and a sum of its own, so a row needs one reduction and not one a block.
"""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS_PER_SM = 8


@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        lane_m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
        lane_d = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            raised = tl.maximum(lane_m, x)
            # A lane that has seen nothing but -inf must not compute -inf - -inf.
            shift = tl.where(raised == -float("inf"), 0.0, raised)
            lane_d = lane_d * tl.exp(lane_m - shift) + tl.exp(x - shift)
            lane_m = raised
        m = tl.max(lane_m, axis=0)
        d = tl.sum(lane_d * tl.exp(lane_m - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def gradient_rows_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        lane_s = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            lane_s += dy * y
        s = tl.sum(lane_s, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def programs_for(x: torch.Tensor) -> int:
    """As many programs as the device runs at a time, and no more than there are rows."""
    if not x.is_cuda:
        return min(x.size(0), 16)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(x.size(0), PROGRAMS_PER_SM * sms)


def options(n_cols: int) -> dict:
    """A warp for each 512 columns, from 1 to 8, and a block that is a power of two."""
    return {
        "BLOCK": min(triton.next_power_of_2(n_cols), BLOCK),
        "num_warps": min(max(triton.cdiv(n_cols, 512), 1), 8),
    }


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    softmax_rows_kernel[(programs_for(x),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), **options(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    gradient_rows_kernel[(programs_for(dy),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BLOCK),
        num_warps=4,
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
