# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient. Rows up to WHOLE columns stay in registers; longer rows are shared by several programs."""

import torch
import triton
import triton.language as tl

WHOLE = 16384
CHUNK = 8192


@triton.jit
def whole_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One row, one block, one load."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    live = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=live, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def chunk_kernel(x_ptr, tops_ptr, sums_ptr, n_cols, stride_x, chunks, CHUNK: tl.constexpr):
    """Program (i, c): maximum of chunk c of row i, and the sum of its exponentials relative to it."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    # A chunk of -inf alone has the sum 0 for any finite shift.
    shift = tl.where(top == -float("inf"), 0.0, top)
    slot = row * chunks + chunk
    tl.store(tops_ptr + slot, top)
    tl.store(sums_ptr + slot, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def merge_kernel(
    x_ptr, y_ptr, tops_ptr, sums_ptr, n_cols, stride_x, stride_y, chunks, CHUNK: tl.constexpr, SLOTS: tl.constexpr
):
    """Program (i, c): m and d of row i from all its chunks, then chunk c of y."""
    row = tl.program_id(axis=0).to(tl.int64)
    slots = tl.arange(0, SLOTS)
    used = slots < chunks
    tops = tl.load(tops_ptr + row * chunks + slots, mask=used, other=-float("inf"))
    sums = tl.load(sums_ptr + row * chunks + slots, mask=used, other=0.0)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    live = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=live, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * stride_y + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def whole_row_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    live = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=live, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=0))
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=live)


@triton.jit
def products_kernel(dy_ptr, y_ptr, parts_ptr, n_cols, stride_dy, stride_y, chunks, CHUNK: tl.constexpr):
    """Program (i, c): the sum of y * dy over chunk c of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    live = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=live, other=0.0).to(tl.float32)
    tl.store(parts_ptr + row * chunks + chunk, tl.sum(y * dy, axis=0))


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, parts_ptr, n_cols, stride_dy, stride_y, stride_dx, chunks,
    CHUNK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Program (i, c): chunk c of row i of dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    slots = tl.arange(0, SLOTS)
    s = tl.sum(tl.load(parts_ptr + row * chunks + slots, mask=slots < chunks, other=0.0), axis=0)
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    live = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=live, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=live, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=live)


def block_of(n_cols):
    return max(32, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    sx, so = x.stride(0), out.stride(0)
    if n_cols <= WHOLE:
        block = block_of(n_cols)
        whole_row_kernel[(n_rows,)](x, out, n_cols, sx, so, BLOCK=block, num_warps=8 if block > 4096 else 4)
        return out
    chunks = triton.cdiv(n_cols, CHUNK)
    tops = torch.empty((n_rows, chunks), device=x.device, dtype=torch.float32)
    sums = torch.empty_like(tops)
    grid = (n_rows, chunks)
    chunk_kernel[grid](x, tops, sums, n_cols, sx, chunks, CHUNK=CHUNK, num_warps=8)
    slots = triton.next_power_of_2(chunks)
    merge_kernel[grid](x, out, tops, sums, n_cols, sx, so, chunks, CHUNK=CHUNK, SLOTS=slots, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    sg, sy, so = dy.stride(0), y.stride(0), out.stride(0)
    if n_cols <= WHOLE:
        block = block_of(n_cols)
        warps = max(4, min(32, block // 512))
        whole_row_gradient_kernel[(n_rows,)](dy, y, out, n_cols, sg, sy, so, BLOCK=block, num_warps=warps)
        return out
    chunks = triton.cdiv(n_cols, CHUNK)
    parts = torch.empty((n_rows, chunks), device=dy.device, dtype=torch.float32)
    grid = (n_rows, chunks)
    products_kernel[grid](dy, y, parts, n_cols, sg, sy, chunks, CHUNK=CHUNK, num_warps=8)
    slots = triton.next_power_of_2(chunks)
    gradient_kernel[grid](
        dy, y, out, parts, n_cols, sg, sy, so, chunks, CHUNK=CHUNK, SLOTS=slots, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
