# labs/lab2_online_softmax/online_softmax.py | corner | The helper columns_here of the forward kernel, `tl.where(start + BLOCK >= n_cols, n_cols % BLOCK, BLOCK)`, gives 0 columns for a last block that is exactly full, as n_cols % BLOCK is 0 there; it shows only where n_cols is a multiple of the block (powers of two up to 4096, as 1, 2, 128 and 4096: nothing is written; multiples of 4096, as 24576 and 131072: the last 4096 columns are neither counted nor written). The comparison should be `>`.
import torch
import triton
import triton.language as tl

WIDTH = 4096


@triton.jit
def columns_here(start, n_cols, BLOCK: tl.constexpr):
    """How many columns of the row lie in the block that begins at `start`."""
    return tl.where(start + BLOCK >= n_cols, n_cols % BLOCK, BLOCK)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, x_row_stride, y_row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_lanes = x_ptr + row * x_row_stride + lane
    y_lanes = y_ptr + row * y_row_stride + lane

    running_max = -float("inf")
    running_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        used = lane < columns_here(start, n_cols, BLOCK)
        x = tl.load(x_lanes + start, mask=used, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, axis=0))
        safe_max = tl.where(new_max == -float("inf"), 0.0, new_max)
        running_sum *= tl.exp(running_max - safe_max)
        running_sum += tl.sum(tl.exp(x - safe_max), axis=0)
        running_max = new_max

    for start in range(0, n_cols, BLOCK):
        used = lane < columns_here(start, n_cols, BLOCK)
        x = tl.load(x_lanes + start, mask=used, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(y_lanes + start, y.to(y_ptr.dtype.element_ty), mask=used)


@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, dy_row_stride, y_row_stride, dx_row_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_lanes = dy_ptr + row * dy_row_stride + lane
    y_lanes = y_ptr + row * y_row_stride + lane
    dx_lanes = dx_ptr + row * dx_row_stride + lane

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        used = lane < n_cols - start
        dy = tl.load(dy_lanes + start, mask=used, other=0.0).to(tl.float32)
        y = tl.load(y_lanes + start, mask=used, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        used = lane < n_cols - start
        dy = tl.load(dy_lanes + start, mask=used, other=0.0).to(tl.float32)
        y = tl.load(y_lanes + start, mask=used, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_lanes + start, dx.to(dx_ptr.dtype.element_ty), mask=used)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(WIDTH, triton.next_power_of_2(n_cols))
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax_forward, from the gradient of its result and the result."""
    n_rows, n_cols = y.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = min(WIDTH, triton.next_power_of_2(n_cols))
    softmax_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


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
