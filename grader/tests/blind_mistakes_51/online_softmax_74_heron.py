# labs/lab2_online_softmax/online_softmax.py | corner | `LOWEST = -65504.0` (host constant, used in `persistent_softmax_kernel` as `peak = LOWEST` and `other=LOWEST`) is not below all scores: it should be -inf with a guard, or a finite number far below, as -1e30. Wrong in fp32 and bf16 rows whose maximum lies near or below -65504 (y is 0, or NaN where no lane is masked), and in fp16 rows at -65504 whose length is no power of two (masked lanes are counted).
"""Softmax over rows of any length with a fixed number of programs, each of which takes every PROGRAMS-th row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 1056  # eight for each multiprocessor of an H200

# Where a maximum begins, and what a lane past the end of a row holds. It is finite in all three dtypes, so no
# difference of two maxima is NaN.
LOWEST = -65504.0

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def persistent_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    LOWEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y

        peak = LOWEST
        mass = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(
                x_row_ptr + cols, mask=cols < n_cols, other=LOWEST, eviction_policy="evict_last"
            ).to(tl.float32)
            new_peak = tl.maximum(peak, tl.max(x, axis=0))
            mass = mass * tl.exp2((peak - new_peak) * LOG2E) + tl.sum(tl.exp2((x - new_peak) * LOG2E), axis=0)
            peak = new_peak

        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            x = tl.load(
                x_row_ptr + cols, mask=inside, other=LOWEST, eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp2((x - peak) * LOG2E) / mass
            tl.store(
                y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
            )
        row += tl.num_programs(axis=0)


@triton.jit
def persistent_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    while row < n_rows:
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx

        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)

        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(axis=0)


def launch_shape(n_rows: int, n_cols: int, widest: int):
    """Programs, width of a block, and warps."""
    block = min(triton.next_power_of_2(n_cols), widest)
    warps = min(max(block // 512, 1), 16)
    return (min(n_rows, PROGRAMS),), block, warps


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    grid, block, warps = launch_shape(n_rows, n_cols, FORWARD_BLOCK)
    persistent_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        LOWEST=LOWEST,
        BLOCK=block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    grid, block, warps = launch_shape(n_rows, n_cols, BACKWARD_BLOCK)
    persistent_gradient_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
