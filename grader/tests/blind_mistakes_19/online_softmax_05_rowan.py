# labs/lab2_online_softmax/online_softmax.py | right | right: per-lane maxima and sums merged at the end, with a heuristic that takes a one-load path only where the tile of the config that runs holds the row
"""Each lane keeps a maximum and a sum of its own; the lanes meet once, behind the loop."""

import itertools

import torch
import triton
import triton.language as tl

NOTHING = tl.constexpr(-float("inf"))


def tiles(widths, warps):
    """All pairs in which a thread has at most 64 numbers and at least 4."""
    pairs = list(itertools.product(widths, warps))
    return [triton.Config({"TILE": t}, num_warps=w) for t, w in pairs if 4 <= t // (32 * w) <= 64]


@triton.autotune(configs=tiles((512, 2048, 8192), (2, 4, 8)), key=["n_cols"])
@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["TILE"]})
@triton.jit
def forward_kernel(
    x_ptr, y_ptr, stride_x, stride_y, n_cols, TILE: tl.constexpr, WHOLE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, TILE)
    if WHOLE:
        x = tl.load(x_ptr + lanes, mask=lanes < n_cols, other=NOTHING).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        m = tl.full((TILE,), NOTHING, dtype=tl.float32)
        d = tl.zeros((TILE,), dtype=tl.float32)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=NOTHING).to(tl.float32)
            m_new = tl.maximum(m, x)
            shift = tl.where(m_new == NOTHING, 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.exp(x - shift)
            m = m_new
        top = tl.max(m, axis=0)
        total = tl.sum(d * tl.exp(m - top), axis=0)
        for start in range(0, n_cols, TILE):
            cols = start + lanes
            x = tl.load(x_ptr + cols, mask=cols < n_cols, other=NOTHING).to(tl.float32)
            y = tl.exp(x - top) / total
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=tiles((1024, 4096), (4, 8)), key=["n_cols"])
@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, n_cols, TILE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, TILE)
    partial = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, n_cols, TILE):
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        partial += dy * y
    s = tl.sum(partial, axis=0)
    for start in range(0, n_cols, TILE):
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of the rows of x, into out where it is given."""
    y = torch.empty_like(x) if out is None else out
    forward_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1])
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the rows of x, into out where it is given."""
    dx = torch.empty_like(dy) if out is None else out
    backward_kernel[(dy.shape[0],)](
        dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), dy.shape[1]
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """y with its gradient."""

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
    """Differentiable softmax of the rows of x."""
    return OnlineSoftmax.apply(x)
