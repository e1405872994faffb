# labs/lab2_online_softmax/online_softmax.py | right | Three ways by shape: whole rows in registers, two sweeps, or parts of a row shared by many programs in two launches with a workspace of maxima and sums, which is merged online.
"""Softmax over rows of any length, three ways: rows that fit one block stay in registers, long ones are swept twice,
and where there are too few long rows for all multiprocessors, many programs share a row in two launches."""

import torch
import triton
import triton.language as tl

WHOLE = 8192  # the widest rows that are held in registers
CHUNK = 4096  # columns of a program that shares its row
FEW = 264  # rows, two for each multiprocessor of an H200
BACKWARD_BLOCK = 8192


@triton.jit
def top_and_sum(x):
    """The maximum of a block and its sum of exp(x - maximum); -inf and 0 for a block of nothing but -inf."""
    top = tl.max(x, axis=0)
    return top, tl.sum(tl.exp(x - tl.where(top == -float("inf"), 0.0, top)), axis=0)


@triton.jit
def whole_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i holds the whole row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def swept_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i sweeps row i twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        top, part = top_and_sum(x.to(tl.float32))
        # Both sums shrink to the scale of the higher maximum. An empty sum is 0 on any finite scale.
        higher = tl.maximum(m, top)
        scale = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * tl.exp(m - scale) + part * tl.exp(top - scale)
        m = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def shared_rows_first_kernel(x_ptr, parts_ptr, n_cols, n_parts, stride_x, CHUNK: tl.constexpr):
    """Program (i, j) leaves the maximum and the sum of part j of row i in parts, (n_rows, n_parts, 2) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    top, total = top_and_sum(x)
    part_ptr = parts_ptr + (row * n_parts + part) * 2
    tl.store(part_ptr, top)
    tl.store(part_ptr + 1, total)


@triton.jit
def shared_rows_second_kernel(
    x_ptr, y_ptr, parts_ptr, n_cols, n_parts, stride_x, stride_y, CHUNK: tl.constexpr, PARTS: tl.constexpr
):
    """Program (i, j) merges all parts of row i, PARTS at a time, and normalises part j."""
    row = tl.program_id(axis=0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_parts, PARTS):
        parts = start + tl.arange(0, PARTS)
        part_ptrs = parts_ptr + (row * n_parts + parts) * 2
        tops = tl.load(part_ptrs, mask=parts < n_parts, other=-float("inf"))
        totals = tl.load(part_ptrs + 1, mask=parts < n_parts, other=0.0)
        higher = tl.maximum(m, tl.max(tops, axis=0))
        scale = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * tl.exp(m - scale) + tl.sum(totals * tl.exp(tops - scale), axis=0)
        m = higher
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def warps_for(block: int) -> int:
    """One warp for each 512 columns, 1 to 16."""
    return min(max(block // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    strides = (x.stride(0), out.stride(0))
    if n_cols <= WHOLE:
        block = triton.next_power_of_2(n_cols)
        whole_rows_kernel[(n_rows,)](x, out, n_cols, *strides, BLOCK=block, num_warps=warps_for(block))
    elif n_rows > FEW:
        swept_rows_kernel[(n_rows,)](x, out, n_cols, *strides, BLOCK=WHOLE, num_warps=warps_for(WHOLE))
    else:
        n_parts = triton.cdiv(n_cols, CHUNK)
        parts = torch.empty((n_rows, n_parts, 2), dtype=torch.float32, device=x.device)
        grid = (n_rows, n_parts)
        warps = warps_for(CHUNK)
        shared_rows_first_kernel[grid](
            x, parts, n_cols, n_parts, x.stride(0), CHUNK=CHUNK, num_warps=warps
        )
        shared_rows_second_kernel[grid](
            x, out, parts, n_cols, n_parts, *strides, CHUNK=CHUNK, PARTS=32, num_warps=warps
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps_for(block))
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
