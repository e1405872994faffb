# labs/lab2_online_softmax/online_softmax.py | honest | No mistake. Rows of one block stay in registers (no second load), longer ones are swept forwards and then backwards; helpers return pairs.
"""Softmax and its gradient: a short row is loaded once, a long one twice, the second time from its end."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def absorb(m, d, x):
    """(m, d) of a row after one more block, x in fp32, -inf where there is nothing."""
    top = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(top == -float("inf"), 0.0, top)
    return top, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def pair(a_row, b_row, cols, inside):
    """The same columns of two rows, as fp32, 0 outside."""
    a = tl.load(a_row + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_row + cols, mask=inside, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, SHORT: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    out_type: tl.constexpr = y_ptr.dtype.element_ty
    lane = tl.arange(0, BLOCK)
    if SHORT:
        inside = lane < n_cols
        x = tl.load(source + lane, mask=inside, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(target + lane, (e / tl.sum(e, axis=0)).to(out_type), mask=inside, eviction_policy="evict_first")
    else:
        m, d = -float("inf"), 0.0
        blocks = tl.cdiv(n_cols, BLOCK)
        for i in range(blocks):
            cols = i * BLOCK + lane
            x = tl.load(source + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
            m, d = absorb(m, d, x.to(tl.float32))
        for i in range(blocks):
            cols = (blocks - 1 - i) * BLOCK + lane
            inside = cols < n_cols
            x = tl.load(source + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
            y = tl.exp(x.to(tl.float32) - m) / d
            tl.store(target + cols, y.to(out_type), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, SHORT: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    g_row, y_row, dx_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    out_type: tl.constexpr = dx_ptr.dtype.element_ty
    lane = tl.arange(0, BLOCK)
    if SHORT:
        inside = lane < n_cols
        g, y = pair(g_row, y_row, lane, inside)
        dx = y * (g - tl.sum(g * y, axis=0))
        tl.store(dx_row + lane, dx.to(out_type), mask=inside, eviction_policy="evict_first")
    else:
        blocks = tl.cdiv(n_cols, BLOCK)
        s = 0.0
        for i in range(blocks):
            cols = i * BLOCK + lane
            g, y = pair(g_row, y_row, cols, cols < n_cols)
            s += tl.sum(g * y, axis=0)
        for i in range(blocks):
            cols = (blocks - 1 - i) * BLOCK + lane
            g, y = pair(g_row, y_row, cols, cols < n_cols)
            tl.store(dx_row + cols, (y * (g - s)).to(out_type), mask=cols < n_cols, eviction_policy="evict_first")


def plan(n_cols: int, columns_of_a_warp: int, most: int):
    """The options of a launch for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = min(max(block // columns_of_a_warp, 1), most)
    return {"BLOCK": block, "SHORT": n_cols <= block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    n_rows, n_cols = x.shape
    options = plan(n_cols, 1024, 8 if n_cols > 8192 else 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device) if out is None else out
    n_rows, n_cols = y.shape
    options = plan(n_cols, 512, 32)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options)
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
        # The kernel takes any distance between rows, but only neighbouring columns.
        return softmax_backward(dy if dy.stride(1) == 1 else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
