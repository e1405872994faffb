# labs/lab2_online_softmax/online_softmax.py | corner | The heuristic `"EVEN": lambda args: args["n_cols"] % args["TILE"] == 0` of `unrolled_softmax_kernel` drops the masks, but one turn takes UNROLL tiles: it should be `% (args["TILE"] * args["UNROLL"]) == 0`. Out of bounds reads and stores, and wrong sums, for n_cols that are multiples of 512 above 512 but not of 2048 (1024, 1536, 2560, ...).
"""Softmax over rows of any length: one turn of the loop takes UNROLL tiles, and rows of whole turns need no masks."""

import torch
import triton
import triton.language as tl

TILE = 512
UNROLL = 4
BACKWARD_BLOCK = 8192

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tile(row_ptr, cols, n_cols, OTHER: tl.constexpr, EVEN: tl.constexpr):
    """A tile in fp32; OTHER stands past the end of the row, which only a row that is not even can reach."""
    if EVEN:
        tile = tl.load(row_ptr + cols)
    else:
        tile = tl.load(row_ptr + cols, mask=cols < n_cols, other=OTHER)
    return tile.to(tl.float32)


@triton.jit
def store_tile(row_ptr, cols, n_cols, tile, EVEN: tl.constexpr):
    tile = tile.to(row_ptr.dtype.element_ty)
    if EVEN:
        tl.store(row_ptr + cols, tile)
    else:
        tl.store(row_ptr + cols, tile, mask=cols < n_cols)


@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["TILE"] == 0})
@triton.jit
def unrolled_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    TILE: tl.constexpr,
    UNROLL: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Program i owns row i. Maximum and sum are kept in each lane, and merged behind the last tile."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, TILE)

    peaks = tl.full([TILE], -float("inf"), tl.float32)
    sums = tl.zeros([TILE], tl.float32)
    for start in range(0, n_cols, TILE * UNROLL):
        for i in tl.static_range(UNROLL):
            x = load_tile(x_row_ptr, start + i * TILE + lanes, n_cols, -float("inf"), EVEN)
            new_peaks = tl.maximum(peaks, x)
            shift = tl.where(new_peaks == -float("inf"), 0.0, new_peaks)
            sums = sums * tl.exp2((peaks - shift) * LOG2E) + tl.exp2((x - shift) * LOG2E)
            peaks = new_peaks

    peak = tl.max(peaks, axis=0)
    share = 1.0 / tl.sum(sums * tl.exp2((peaks - peak) * LOG2E), axis=0)

    for start in range(0, n_cols, TILE * UNROLL):
        for i in tl.static_range(UNROLL):
            cols = start + i * TILE + lanes
            x = load_tile(x_row_ptr, cols, n_cols, -float("inf"), EVEN)
            store_tile(y_row_ptr, cols, n_cols, tl.exp2((x - peak) * LOG2E) * share, EVEN)


@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_tile(dy_row_ptr, start + lanes, n_cols, 0.0, EVEN)
        y = load_tile(y_row_ptr, start + lanes, n_cols, 0.0, EVEN)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_tile(dy_row_ptr, start + lanes, n_cols, 0.0, EVEN)
        y = load_tile(y_row_ptr, start + lanes, n_cols, 0.0, EVEN)
        store_tile(dx_row_ptr, start + lanes, n_cols, y * (dy - s), EVEN)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    tile = min(triton.next_power_of_2(n_cols), TILE)
    unroll = UNROLL if n_cols > tile else 1  # a row of one tile has no second one
    unrolled_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), TILE=tile, UNROLL=unroll, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
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
