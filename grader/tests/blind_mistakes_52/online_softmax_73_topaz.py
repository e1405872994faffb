# labs/lab2_online_softmax/online_softmax.py | corner | In `_backward`, `acc = tl.where(inside, acc + g * p, 0.0)` should be `tl.where(inside, acc + g * p, acc)` (lanes that are outside in the last tile lose what they added up in earlier tiles). Shows only for rows longer than one tile (8192 columns) whose length is no multiple of 8192, as 16385, 20011 or 40000, in softmax_backward and the gradient of softmax.
"""Softmax, its gradient, and autograd. The kernels move their pointers from block to block."""

import torch
import triton
import triton.language as tl


@triton.jit
def _forward(src, dst, src_stride, dst_stride, n_cols, TILE: tl.constexpr, N_TILES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    src += row * src_stride + lanes
    dst += row * dst_stride + lanes

    peak = -float("inf")
    norm = 0.0
    for tile in range(N_TILES):
        inside = lanes < n_cols - tile * TILE
        x = tl.load(src + tile * TILE, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        tile_peak = tl.max(x, 0)
        if tile_peak > peak:
            norm = norm * tl.exp(peak - tile_peak)
            peak = tile_peak
        # As long as peak is -inf there was nothing but -inf, whose share of the sum is 0.
        if peak > -float("inf"):
            norm += tl.sum(tl.exp(x - peak), 0)

    for tile in range(N_TILES):
        inside = lanes < n_cols - tile * TILE
        x = tl.load(src + tile * TILE, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - peak) / norm
        tl.store(dst + tile * TILE, y.to(dst.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def _backward(
    grad, prob, dst, grad_stride, prob_stride, dst_stride, n_cols, TILE: tl.constexpr, N_TILES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, TILE)
    grad += row * grad_stride + lanes
    prob += row * prob_stride + lanes
    dst += row * dst_stride + lanes

    # Every lane keeps a sum of its own, and the lanes meet once, behind the loop.
    acc = tl.zeros((TILE,), tl.float32)
    for tile in range(N_TILES):
        inside = lanes < n_cols - tile * TILE
        g = tl.load(grad + tile * TILE, mask=inside, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(prob + tile * TILE, mask=inside, eviction_policy="evict_last").to(tl.float32)
        acc = tl.where(inside, acc + g * p, 0.0)
    dot = tl.sum(acc, 0)

    for tile in range(N_TILES):
        inside = lanes < n_cols - tile * TILE
        g = tl.load(grad + tile * TILE, mask=inside, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(prob + tile * TILE, mask=inside, eviction_policy="evict_first").to(tl.float32)
        dx = p * (g - dot)
        tl.store(dst + tile * TILE, dx.to(dst.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def _tiles(n_cols: int, widest: int, per_warp: int, most: int):
    """Constants of a launch: width and number of the tiles of a row, and warps."""
    tile = min(triton.next_power_of_2(n_cols), widest)
    return {
        "TILE": tile,
        "N_TILES": triton.cdiv(n_cols, tile),
        "num_warps": min(max(tile // per_warp, 1), most),
    }


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    assert x.dim() == 2 and (x.size(1) == 1 or x.stride(1) == 1), "columns must be contiguous"
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    meta = _tiles(n_cols, widest=8192, per_warp=1024, most=8)
    _forward[(n_rows,)](x, out, x.stride(0), out.stride(0), n_cols, **meta)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax."""
    assert dy.shape == y.shape, "dy is the gradient of y"
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    meta = _tiles(n_cols, widest=8192, per_warp=512, most=16)
    _backward[(n_rows,)](dy, y, out, dy.stride(0), y.stride(0), out.stride(0), n_cols, **meta)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Autograd function of softmax_forward and softmax_backward."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy if dy.is_contiguous() else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row, differentiable."""
    return OnlineSoftmax.apply(x)
