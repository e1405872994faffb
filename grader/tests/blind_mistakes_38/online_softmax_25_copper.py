# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward keeps its input, `ctx.save_for_backward(x)`, so OnlineSoftmax.backward hands x in place of the result y to softmax_backward and gets x * (dy - sum(x * dy)). It should be save_for_backward(y), with y the result. The gradient of softmax() is wrong in every case; softmax_forward and softmax_backward by themselves are right.
"""Softmax in two launches: the statistics of each row first, then every block of the matrix on its own."""

import torch
import triton
import triton.language as tl

STATISTICS_BLOCK = 4096
NORMALISE_BLOCK = 2048
BACKWARD_BLOCK = 8192


@triton.jit
def row_statistics_kernel(x_ptr, stats_ptr, n_rows, n_cols, stride_x, BLOCK: tl.constexpr):
    """stats[0, i] = the maximum of row i, stats[1, i] = 1 / the sum of exp(x - maximum)."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    peak = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_ptr + row * stride_x + cols,
            mask=cols < n_cols,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(x, axis=0))
        shift = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        total = total * tl.exp(peak - shift) + tl.sum(tl.exp(x - shift), axis=0)
        peak = new_peak
    tl.store(stats_ptr + row, peak)
    tl.store(stats_ptr + n_rows + row, 1.0 / total)


@triton.jit
def normalise_kernel(x_ptr, y_ptr, stats_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program (i, j) writes block j of row i."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    peak = tl.load(stats_ptr + row)
    scale = tl.load(stats_ptr + n_rows + row)
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - peak) * scale
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += g * p
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        g = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptr + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def warps_for(block: int, per_warp: int) -> int:
    return min(max(block // per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    stats = torch.empty((2, n_rows), dtype=torch.float32, device=x.device)
    width = triton.next_power_of_2(n_cols)

    block = min(width, STATISTICS_BLOCK)
    row_statistics_kernel[(n_rows,)](
        x, stats, n_rows, n_cols, x.stride(0), BLOCK=block, num_warps=warps_for(block, 1024)
    )
    block = min(width, NORMALISE_BLOCK)
    normalise_kernel[(n_rows, triton.cdiv(n_cols, block))](
        x,
        out,
        stats,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps_for(block, 512),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps_for(block, 512),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), kept)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x, with a gradient."""
    return OnlineSoftmax.apply(x)
