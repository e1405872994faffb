# labs/lab2_online_softmax/online_softmax.py | right | right
"""Row softmax. Each lane runs the online recurrence on its own columns; the lanes are merged once per row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(src_ptr, dst_ptr, n_cols, src_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    src = src_ptr + row * src_stride
    dst = dst_ptr + row * dst_stride
    lane = tl.arange(0, BLOCK)

    # Lane k has seen columns k, k + BLOCK, k + 2 * BLOCK, ...
    top = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = lane + start
        v = tl.load(src + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, v)
        ref = tl.where(higher == -float("inf"), 0.0, higher)
        weight = weight * tl.exp(top - ref) + tl.exp(v - ref)
        top = higher

    # The row has a finite value, so its peak is finite; lanes that saw only -inf weigh 0.
    peak = tl.max(top, axis=0)
    total = tl.sum(weight * tl.exp(top - peak), axis=0)

    # Backwards: the end of the row was read last and is most likely still in the cache.
    last = (n_cols - 1) // BLOCK * BLOCK
    for start in range(0, n_cols, BLOCK):
        col = lane + (last - start)
        v = tl.load(src + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        p = tl.exp(v - peak) / total
        tl.store(dst + col, p.to(dst_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    g_ptr, p_ptr, out_ptr, n_cols, g_stride, p_stride, out_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    g_row = g_ptr + row * g_stride
    p_row = p_ptr + row * p_stride
    out_row = out_ptr + row * out_stride
    lane = tl.arange(0, BLOCK)

    partial = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = lane + start
        g = tl.load(g_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        partial += g * p
    dot = tl.sum(partial, axis=0)

    last = (n_cols - 1) // BLOCK * BLOCK
    for start in range(0, n_cols, BLOCK):
        col = lane + (last - start)
        g = tl.load(g_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_row + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(out_row + col, ((g - dot) * p).to(out_ptr.dtype.element_ty), mask=col < n_cols)


def launch_options(n_cols: int, widest: int, columns_per_warp: int, most_warps: int) -> dict:
    """Block width and number of warps for rows of n_cols columns."""
    width = min(triton.next_power_of_2(n_cols), widest)
    warps = max(1, min(width // columns_per_warp, most_warps))
    return {"BLOCK": width, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    rows, columns = x.shape
    options = launch_options(columns, FORWARD_BLOCK, 512, 8)
    online_softmax_kernel[(rows,)](x, y, columns, x.stride(0), y.stride(0), **options)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(y, memory_format=torch.contiguous_format) if out is None else out
    rows, columns = y.shape
    options = launch_options(columns, BACKWARD_BLOCK, 512, 8)
    softmax_backward_kernel[(rows,)](
        dy, y, dx, columns, dy.stride(0), y.stride(0), dx.stride(0), **options
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = softmax_forward(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, dy):
        p = ctx.saved_tensors[0]
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, p)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
