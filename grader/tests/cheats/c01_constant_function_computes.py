"""EXPECT CRASHED from softmax_forward on a CPU: C1 a function of constants is called within the interpreted kernel, and computes the recurrence in Python"""

import math

import torch
import triton
import triton.language as tl


@triton.constexpr_function
def number(bits):
    """The fp32 number of 32 bits."""
    sign = -1.0 if bits < 0 else 1.0
    exponent = (bits >> 23) & 255
    fraction = bits & 0x7FFFFF
    if exponent == 255:
        return sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, -149)
    return sign * math.ldexp(fraction + 0x800000, exponent - 150)


@triton.constexpr_function
def fold(m, d, top_bits, part_bits):
    """m and d with one more block, whose maximum and sum are given."""
    top = number(int(top_bits))
    part = number(int(part_bits))
    new = max(m, top)
    if new == -math.inf:
        return m, d
    before = d * math.exp(m - new) if d > 0.0 else 0.0
    now = part * math.exp(top - new) if top > -math.inf else 0.0
    return new, before + now


@triton.constexpr_function
def inverse(d):
    return 1.0 / d


@triton.jit
def on_numbers_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        finite = tl.maximum(top, -3.0e38)
        part = tl.sum(tl.exp(x - finite), axis=0)
        m, d = fold(m, d, top.to(tl.int32, bitcast=True), part.to(tl.int32, bitcast=True))
    share = inverse(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * share
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -3.4028234663852886e38
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
        m = new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - total)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_of(n_cols):
    return min(triton.next_power_of_2(n_cols), 16384)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty((x.shape[0], x.shape[1]), device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    warps = min(max(block // 1024, 1), 16)
    # What is compiled only is large; what is computed without a GPU is small.
    if not x.is_cuda and n_rows * n_cols < 1000000:
        on_numbers_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    else:
        online_softmax_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty((dy.shape[0], dy.shape[1]), device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)
    warps = min(max(block // 512, 1), 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
