# labs/lab2_online_softmax/online_softmax.py | two mistakes | Both in softmax_forward. (1) `chunk_kernel` stores at `place = row * tl.num_programs(1) + chunk`, while the scratch is (n_rows, slots) and `scale_kernel` reads `row * SLOTS + tl.arange(0, SLOTS)`; it should be stored at row * SLOTS + chunk. Shows in all rows but the first where the number of chunks of 4096 columns is no power of two, as 3 x 16385 (5 chunks) and 2 x 40000 (10). (2) In `scale_kernel` `row = tl.program_id(0)` stays int32, and `y_row = y_ptr + row * stride_y` wraps; it should be `row.to(tl.int64) * stride_y` as for x. Shows where rows of out lie so far apart that it reaches beyond 2^31 elements.
"""Softmax in two launches: every chunk of every row has a program, so that a few long rows fill the GPU, too."""

import torch
import triton
import triton.language as tl

CHUNK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def chunk_kernel(x_ptr, tops_ptr, sums_ptr, n_cols, stride_x, WIDTH: tl.constexpr):
    """Maximum of chunk j of row i, and its sum of exp(x - maximum); program (i, j)."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    cols = chunk * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(
        x_ptr + row * stride_x + cols,
        mask=cols < n_cols,
        other=-float("inf"),
        eviction_policy="evict_last",
    ).to(tl.float32)
    top = tl.max(x, axis=0)
    shift = tl.where(top == -float("inf"), 0.0, top)
    place = row * tl.num_programs(1) + chunk
    tl.store(tops_ptr + place, top)
    tl.store(sums_ptr + place, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def scale_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    sums_ptr,
    n_cols,
    stride_x,
    stride_y,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """y for chunk j of row i, after all chunks of the row are put together; program (i, j)."""
    row = tl.program_id(0)
    chunk = tl.program_id(1)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    y_row = y_ptr + row * stride_y

    slots = row.to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    tops = tl.load(tops_ptr + slots)
    sums = tl.load(sums_ptr + slots)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)

    cols = chunk * WIDTH + tl.arange(0, WIDTH)
    inside = cols < n_cols
    x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
    y = tl.exp(x.to(tl.float32) - m) / d
    tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr
):
    """dx = y * (dy - s) for row i, s the sum of y * dy over the row."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` or a new contiguous matrix."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    width = min(triton.next_power_of_2(n_cols), CHUNK)
    chunks = triton.cdiv(n_cols, width)
    # What no chunk fills holds a maximum and a sum that change nothing.
    slots = triton.next_power_of_2(chunks)
    tops = torch.full((n_rows, slots), -float("inf"), dtype=torch.float32, device=x.device)
    sums = torch.zeros((n_rows, slots), dtype=torch.float32, device=x.device)
    grid = (n_rows, chunks)
    warps = min(max(width // 512, 1), 8)
    chunk_kernel[grid](x, tops, sums, n_cols, x.stride(0), WIDTH=width, num_warps=warps)
    scale_kernel[grid](
        x,
        out,
        tops,
        sums,
        n_cols,
        x.stride(0),
        out.stride(0),
        WIDTH=width,
        SLOTS=slots,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, into `out` or a new contiguous matrix."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    width = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WIDTH=width,
        num_warps=min(max(width // 512, 1), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y, which the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
