# labs/lab2_online_softmax/online_softmax.py | corner | In forward_kernel the partial last block (`if full < n_cols`, first sweep) computes `top` and brings d to it, but never does `m = top`; it shows only where a row has a partial block behind its full ones (n_cols is neither a power of two up to 8192 nor a multiple of 8192) and the maximum of the row lies there: y = exp(x - old m) / d is too large by exp(top - old m), rows sum to more than 1 (inf or NaN where all full blocks are -inf). After the line that updates d there should be `m = top`.
"""Row softmax: full blocks without a mask first, then what is left of the row with one."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr):
    """One program owns one row. BLOCK is at most n_cols, so that there is at least one full block."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    lane = tl.arange(0, BLOCK)
    full = n_cols - n_cols % BLOCK  # columns that lie in full blocks

    m = -float("inf")
    d = 0.0
    for start in range(0, full, BLOCK):
        x = tl.load(x_ptr + start + lane, eviction_policy="evict_last").to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)
        m = top
    if full < n_cols:
        x = tl.load(x_ptr + full + lane, mask=lane < n_cols - full, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)

    for start in range(0, full, BLOCK):
        x = tl.load(x_ptr + start + lane, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty))
    if full < n_cols:
        inside = lane < n_cols - full
        x = tl.load(x_ptr + full + lane, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + full + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    lane = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + start + lane, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def largest_power_of_2(n: int) -> int:
    """The largest power of two that is not above n."""
    return 1 << (n.bit_length() - 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(largest_power_of_2(n_cols), WIDEST)
    warps = min(max(block // 1024, 1), 4)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = min(max(block // 512, 4), 16)
    backward_kernel[(n_rows,)](
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
