# labs/lab2_online_softmax/online_softmax.py | two mistakes | In `walk_kernel`: (1) the last line `y_row += stride_x` must be `y_row += stride_y`: from the second row of a program on the result goes to the wrong place where x and out have different row strides (padded x or out, also a new out for a padded x). (2) `peak = tl.full((), LOWEST, tl.float32)` stands before the loop over rows and must be set for each row: a row far below the row before it in the same program of 4 rows (rows alternating between normal and -256) gets exp = 0 everywhere and 0 / 0 = NaN.
"""Softmax where each program walks down a few neighbouring rows, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

ROWS = 4  # neighbouring rows of a program
WIDEST = 8192
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def walk_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows pid * ROWS to pid * ROWS + ROWS - 1; the pointers step from one row to the next."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    x_row = x_ptr + first * stride_x
    y_row = y_ptr + first * stride_y
    lanes = tl.arange(0, BLOCK)
    # Finite, so that a block of -inf alone leaves no -inf - -inf.
    peak = tl.full((), LOWEST, tl.float32)
    for k in range(0, ROWS):
        if first + k < n_rows:
            total = tl.full((), 0.0, tl.float32)
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                higher = tl.maximum(peak, tl.max(x, axis=0))
                total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), axis=0)
                peak = higher
            for start in range(0, n_cols, BLOCK):
                cols = lanes + start
                inside = cols < n_cols
                x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - peak) / total
                tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)
        x_row += stride_x
        y_row += stride_x


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s) for row pid, where s is the sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = tl.full((), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = lanes + start
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = lanes + start
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def block_and_warps(n_cols: int, per_warp: int):
    """Width of a block, and warps for it when each takes per_warp columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, min(max(block // per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    block, warps = block_and_warps(n_cols, 1024)
    grid = (triton.cdiv(n_rows, ROWS),)
    walk_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    block, warps = block_and_warps(n_cols, 512)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
