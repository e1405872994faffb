# labs/lab2_online_softmax/online_softmax.py | right | right: whole blocks without a mask, the rest with one, a second sweep that goes backwards, and a finite floor of -3e38 under the shift
"""Softmax in whole blocks and a rest; the second sweep goes from the end of the row to its start."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def fold(m, d, x):
    """The maximum and the sum with one more block x; values are never near the floor, so only -inf meets it."""
    top = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.maximum(top, -3.0e38)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return top, d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    source = x_ptr + row * stride_x + lanes
    target = y_ptr + row * stride_y + lanes
    whole = n_cols // BLOCK * BLOCK
    rest = lanes < n_cols - whole

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        m, d = fold(m, d, tl.load(source + start).to(tl.float32))
    if whole < n_cols:
        tail = tl.load(source + whole, mask=rest, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, tail)

    share = 1.0 / d
    if whole < n_cols:
        last = tl.load(source + whole, mask=rest, other=-float("inf")).to(tl.float32)
        tl.store(target + whole, (tl.exp(last - m) * share).to(y_ptr.dtype.element_ty), mask=rest)
    for back in range(BLOCK, whole + 1, BLOCK):
        begin = whole - back
        x = tl.load(source + begin).to(tl.float32)
        tl.store(target + begin, (tl.exp(x - m) * share).to(y_ptr.dtype.element_ty))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    blocks = (n_cols + BLOCK - 1) // BLOCK

    total = 0.0
    for k in range(0, blocks):
        at = k * BLOCK + lanes
        g = tl.load(dy_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(g * y, axis=0)
    for k in range(0, blocks):
        at = (blocks - 1 - k) * BLOCK + lanes
        g = tl.load(dy_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, ((g - total) * y).to(dx_ptr.dtype.element_ty), mask=at < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def options(n_cols: int, widest: int, per_warp: int) -> dict:
    block = clamp(triton.next_power_of_2(n_cols), 1, widest)
    return {"BLOCK": block, "num_warps": clamp(block // per_warp, 1, 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), **options(n_cols, FORWARD_BLOCK, 1024)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        **options(n_cols, BACKWARD_BLOCK, 512),
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
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
