# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `tile_kernel`, `top = tl.max(tl.max(x, axis=1), axis=0)` is one maximum for all rows of a tile; it should be one for each row, `tl.max(x, axis=1)`. Rows that lie far (about 90 or more) below a neighbour become 0, with up to 2048 columns (e.g. 37 x 100 with every second row near -256). (2) In `softmax_forward`, `part_cols = n_cols // n_parts` should be rounded up, `triton.cdiv(n_cols, n_parts)`: the last columns of rows of more than 4096 columns stay unwritten and are missing in the sum where n_parts does not divide n_cols (e.g. 16385, 20011).
"""Softmax: tiles of short rows, parts of long rows with a second launch; gradient and autograd."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile of short rows, and the longest row that is short
PART = 8192  # columns that a program takes of a long row, at most
BLOCK = 2048  # columns of a long row at a time
BACKWARD_BLOCK = 8192


@triton.jit
def tile_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i holds the rows i * ROWS to i * ROWS + ROWS - 1, each as a whole."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    at = rows[:, None] * stride_x + cols[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(tl.max(x, axis=1), axis=0)  # finite, also where the last tile has fewer rows
    weights = tl.exp(x - top)
    total = tl.sum(weights, axis=1)
    y = weights / tl.where(total > 0.0, total, 1.0)[:, None]  # a lane without a row has no weights
    at = rows[:, None] * stride_y + cols[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def part_kernel(x_ptr, stats_ptr, n_cols, stride_x, n_parts, part_cols, BLOCK: tl.constexpr):
    """Maximum, and sum relative to it, of one part of one row."""
    program = tl.program_id(axis=0).to(tl.int64)
    row = program // n_parts
    first = (program % n_parts).to(tl.int32) * part_cols
    last = tl.minimum(first + part_cols, n_cols)
    m = -float("inf")
    d = 0.0
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    tl.store(stats_ptr + 2 * program, m)
    tl.store(stats_ptr + 2 * program + 1, d)


@triton.jit
def scale_kernel(
    x_ptr, y_ptr, stats_ptr, n_cols, stride_x, stride_y, n_parts, part_cols, BLOCK: tl.constexpr
):
    """Merge the statistics of all parts of a row, and normalise one part."""
    program = tl.program_id(axis=0).to(tl.int64)
    row = program // n_parts
    first = (program % n_parts).to(tl.int32) * part_cols
    last = tl.minimum(first + part_cols, n_cols)
    m = -float("inf")
    d = 0.0
    for part in range(0, n_parts):
        top = tl.load(stats_ptr + 2 * (row * n_parts + part))
        m_new = tl.maximum(m, top)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift)
        d += tl.load(stats_ptr + 2 * (row * n_parts + part) + 1) * tl.exp(top - shift)
        m = m_new
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < last)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row * stride_dx + cols, dx, mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    if n_cols <= TILE:
        width = triton.next_power_of_2(n_cols)
        height = min(TILE // width, 16)
        tile_kernel[(triton.cdiv(n_rows, height),)](
            x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=height, COLS=width, num_warps=4
        )
        return out
    n_parts = triton.cdiv(n_cols, PART)
    part_cols = n_cols // n_parts  # parts of the same size
    stats = torch.empty((n_rows, n_parts, 2), dtype=torch.float32, device=x.device)
    grid = (n_rows * n_parts,)
    part_kernel[grid](x, stats, n_cols, x.stride(0), n_parts, part_cols, BLOCK=BLOCK, num_warps=4)
    scale_kernel[grid](
        x, out, stats, n_cols, x.stride(0), out.stride(0), n_parts, part_cols, BLOCK=BLOCK, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
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
        num_warps=16 if block > 2048 else 4,
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
