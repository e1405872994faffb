# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In lanewise_kernel each lane's d is relative to that lane's own maximum m, but the final fold is tl.sum(d) without bringing the lanes to the maximum of the row, so the denominator is far too large (for a row in one block: the number of its finite columns). It should be tl.sum(d * tl.exp(m - row_max), axis=0).
"""Softmax where every lane runs the online recurrence on its own columns; the lanes meet only once, after the loop."""

import torch
import triton
import triton.language as tl

BACKWARD_BLOCK = 16384


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 2), (1024, 4), (2048, 4))],
    key=["n_cols"],
)
@triton.jit
def lanewise_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)

    # Lane j sees columns j, j + BLOCK, j + 2 * BLOCK, ...: no reduction inside of the loop.
    m = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    d = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(
            x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, x)
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - safe) + tl.exp(x - safe)
        m = m_new

    row_max = tl.max(m, axis=0)
    row_sum = tl.sum(d, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(
            x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(
            y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first"
        )


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)
    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        ok = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        ok = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=ok, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    lanewise_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y)
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 64, BACKWARD_BLOCK)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
        y = ctx.saved_tensors[0]
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
