# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) `softmax_forward` passes `blocks // parts` as the blocks of each part to `part_kernel`; rounded down, it should be `triton.cdiv(blocks, parts)`. Shows in rows of more than 8 blocks of 2048 columns whose number of blocks is no multiple of 8 (16385, 20011, 24576, 40000 columns): the last blocks are missing from maximum and sum. (2) `softmax_forward` passes `n_cols` as `stride_y` to `finish_kernel`; it should be `out.stride(0)`. Shows wherever `out` has padded rows and more than one row, also for short rows.
"""Softmax in two launches: several programs share a row, so that few long rows fill the GPU, too."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MOST_PARTS = 8  # programs that share a row
BACKWARD_BLOCK = 8192


@triton.jit
def part_kernel(x_ptr, top_ptr, sum_ptr, n_cols, blocks, stride_x, BLOCK: tl.constexpr):
    """Maximum and sum of `blocks` blocks of a row; program (i, k) owns part k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row = x_ptr + row * stride_x
    m = -float("inf")
    d = 0.0
    for block in range(0, blocks):
        cols = (part * blocks + block) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    place = row * tl.num_programs(axis=1) + part
    tl.store(top_ptr + place, m)
    tl.store(sum_ptr + place, d)


@triton.jit
def finish_kernel(
    x_ptr, top_ptr, sum_ptr, y_ptr, n_cols, parts, stride_x, stride_y, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Merge the parts of row i, and normalise block k of it; program (i, k)."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.arange(0, PARTS)
    tops = tl.load(top_ptr + row * parts + part, mask=part < parts, other=-float("inf"))
    sums = tl.load(sum_ptr + row * parts + part, mask=part < parts, other=0.0)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    width = min(triton.next_power_of_2(n_cols), BLOCK)
    blocks = triton.cdiv(n_cols, width)
    parts = min(blocks, MOST_PARTS)
    tops = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
    part_kernel[(n_rows, parts)](
        x, tops, sums, n_cols, blocks // parts, x.stride(0), BLOCK=width, num_warps=4
    )
    finish_kernel[(n_rows, blocks)](
        x, tops, sums, out, n_cols, parts, x.stride(0), n_cols,
        PARTS=triton.next_power_of_2(parts), BLOCK=width, num_warps=4,
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    width = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=width, num_warps=min(max(width // 512, 4), 16),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
