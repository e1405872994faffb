# labs/lab2_online_softmax/online_softmax.py | corner | In softmax_rows, the last, partial block is added with `total += tl.sum(...)`: the sum of the whole blocks before it is not rescaled by exp(top - peak) when the partial block has the maximum of the row. It should be total * tl.exp(top - peak) + tl.sum(...). Shows in softmax_forward and softmax only where a row has more than 2048 columns, no multiple of 2048, and its largest value in the part behind the last whole block (ascending rows above all, some random ones): such rows sum to less than 1. Short rows, multiples of 2048 and rows whose whole blocks are all -inf are right.
"""Softmax and its gradient by rows: whole blocks without a mask, then what is left of the row with one."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 2048


@triton.jit
def softmax_rows(src, dst, n_cols, src_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    src += row * src_stride
    dst += row * dst_stride

    lane = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lane
    in_rest = rest < n_cols

    top = -float("inf")
    total = 0.0
    for start in range(0, whole, BLOCK):
        v = tl.load(src + start + lane, eviction_policy="evict_last").to(tl.float32)
        new_top = tl.maximum(top, tl.max(v, axis=0))
        # All of the row so far may be -inf.
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(v - shift), axis=0)
        top = new_top

    # The rest of the row stays in registers until it is stored. A row has a finite value, so peak is finite.
    last = tl.load(src + rest, mask=in_rest, other=-float("inf")).to(tl.float32)
    peak = tl.maximum(top, tl.max(last, axis=0))
    last = tl.exp(last - peak)
    total += tl.sum(last, axis=0)

    scale = 1.0 / total
    for start in range(0, whole, BLOCK):
        w = tl.load(src + start + lane, eviction_policy="evict_first").to(tl.float32)
        w = tl.exp(w - peak) * scale
        tl.store(dst + start + lane, w.to(dst.dtype.element_ty))
    last = last * scale
    tl.store(dst + rest, last.to(dst.dtype.element_ty), mask=in_rest)


@triton.jit
def gradient_rows(dy, y, dx, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy += row * dy_stride
    y += row * y_stride
    dx += row * dx_stride

    lane = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lane
    in_rest = rest < n_cols

    # Starts with the rest, whose lanes past the end add 0, and goes on with the whole blocks.
    last_dy = tl.load(dy + rest, mask=in_rest, other=0.0).to(tl.float32)
    last_y = tl.load(y + rest, mask=in_rest, other=0.0).to(tl.float32)
    s = tl.sum(last_dy * last_y, axis=0)
    for start in range(0, whole, BLOCK):
        g = tl.load(dy + start + lane, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y + start + lane, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(g * p, axis=0)

    for start in range(0, whole, BLOCK):
        g2 = tl.load(dy + start + lane, eviction_policy="evict_first").to(tl.float32)
        p2 = tl.load(y + start + lane, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx + start + lane, (p2 * (g2 - s)).to(dx.dtype.element_ty))
    tl.store(dx + rest, (last_y * (last_dy - s)).to(dx.dtype.element_ty), mask=in_rest)


def block_for(n_cols: int) -> int:
    return max(16, min(triton.next_power_of_2(n_cols), MAX_BLOCK))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x; every tensor has its own distance between rows."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_rows[(x.size(0),)](
        x, out, x.size(1), x.stride(0), out.stride(0), BLOCK=block_for(x.size(1)), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx = y * (dy - sum of y * dy), row by row."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    gradient_rows[(dy.size(0),)](
        dy, y, out, dy.size(1), dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block_for(dy.size(1)), num_warps=4,
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both directions for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
