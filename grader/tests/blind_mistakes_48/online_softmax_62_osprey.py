# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lane_softmax_kernel`, second sweep: `y = tl.exp(x - peak[:, None]) / total` must be `tl.exp(x - top) / total`; `peak` is the maximum of each of the 16 lanes, while `total` is relative to the maximum `top` of the row. All lanes but those that hold the maximum come out too large; right only for one column and constant rows.
"""Softmax over long rows: a tile of lanes, each with a maximum and a sum of its own, and one merge at the end."""

import torch
import triton
import triton.language as tl

TILE = 8192  # columns of a tile
LANES = 16  # stretches into which a tile is cut
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def lane_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Program i owns row i. Lane l takes WIDTH neighbouring columns of each tile of LANES * WIDTH columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    place = tl.arange(0, LANES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    # A finite start: a lane that has seen -inf alone computes exp(-inf), and no -inf - -inf.
    peak = tl.full((LANES,), LOWEST, tl.float32)
    part = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES * WIDTH):
        cols = place + start
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=1))
        part = part * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        peak = higher
    # The lanes meet here, once for each row.
    top = tl.max(peak, axis=0)
    total = tl.sum(part * tl.exp(peak - top), axis=0)
    for start in range(0, n_cols, LANES * WIDTH):
        cols = place + start
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - peak[:, None]) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def lane_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), with s summed lane by lane first."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = tl.arange(0, BLOCK) + start
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = tl.arange(0, BLOCK) + start
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    rows, cols = x.shape
    if out is None:
        out = x.new_empty((rows, cols))
    tile = min(triton.next_power_of_2(cols), TILE)
    lanes = min(tile, LANES)
    lane_softmax_kernel[(rows,)](
        x,
        out,
        cols,
        x.stride(0),
        out.stride(0),
        LANES=lanes,
        WIDTH=tile // lanes,
        num_warps=8 if tile > 4096 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the softmax, from the gradient dy of its result y."""
    rows, cols = y.shape
    if out is None:
        out = y.new_empty((rows, cols))
    block = min(triton.next_power_of_2(cols), TILE)
    lane_backward_kernel[(rows,)](
        dy,
        y,
        out,
        cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block > 4096 else 8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax as a node of the graph."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
