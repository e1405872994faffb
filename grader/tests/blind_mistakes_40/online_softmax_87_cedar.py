# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `row_kernel` and `join_kernel` the row of dx is addressed with the stride of y (`dx_ptr + row * stride_y`); it should be out's own `out.stride(0)`, which is never passed: wrong or out of bounds where `out` and y have different row strides and there is more than one row. (2) In `join_kernel` `which = tl.arange(0, PARTS)` with PARTS = 16 reads the first 16 partial sums only, while `softmax_backward` caps the block by `min(..., 4096)`, so rows of more than 65536 columns have more parts (1 x 131072: 32): s is too small there, in matrices of fewer than 64 rows. It should loop over all `n_parts`, or not cap the block.
"""Online softmax of rows; in the gradient several programs share a row where there are few rows, and long ones."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192
FEW_ROWS = 64  # fewer rows than this do not fill a GPU
LOWEST = tl.constexpr(-3.4028234663852886e38)
PARTS = tl.constexpr(16)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i by program i; each lane has a maximum and a sum of its own, which meet at the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full([BLOCK], LOWEST, dtype=tl.float32)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(tops, x)
        sums = sums * tl.exp(tops - raised) + tl.exp(x - raised)
        tops = raised
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def load_two(dy_row_ptr, y_row_ptr, cols, n_cols):
    mask = cols < n_cols
    dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    return dy, y


@triton.jit
def row_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """dx of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy, y = load_two(dy_row_ptr, y_row_ptr, start + lanes, n_cols)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy, y = load_two(dy_row_ptr, y_row_ptr, cols, n_cols)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def part_kernel(dy_ptr, y_ptr, sums_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """The sum of y * dy over block j of row i, by program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy, y = load_two(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    tl.store(sums_ptr + row * tl.num_programs(axis=1) + part, tl.sum(dy * y, axis=0))


@triton.jit
def join_kernel(dy_ptr, y_ptr, sums_ptr, dx_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """dx of block j of row i, by program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    n_parts = tl.num_programs(axis=1)
    which = tl.arange(0, PARTS)
    s = tl.sum(tl.load(sums_ptr + row * n_parts + which, mask=which < n_parts, other=0.0), axis=0)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy, y = load_two(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_y + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = min(max(block // 512, 1), 8)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0))
    if n_rows < FEW_ROWS and n_cols > BACKWARD_BLOCK:
        # A block stays in the registers of four warps.
        block = min(triton.next_power_of_2(triton.cdiv(n_cols, 16)), 4096)
        grid = (n_rows, triton.cdiv(n_cols, block))
        sums = torch.empty(grid, dtype=torch.float32, device=dy.device)
        part_kernel[grid](dy, y, sums, n_cols, *strides, BLOCK=block, num_warps=4)
        join_kernel[grid](dy, y, sums, out, n_cols, *strides, BLOCK=block, num_warps=4)
        return out
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    row_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=min(max(block // 512, 4), 16)
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
