# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_forward`: `steps = blocks // n_parts` must be `triton.cdiv(blocks, n_parts)`. The parts then miss the last blocks % 8 blocks of the row in maximum and sum, though these are normalised and written. Shows for rows of more than 16384 columns whose number of blocks of 2048 is no multiple of 8 (16385, 20011, 24576, 40000; not 131072): sums above 1, and NaN where only the missed blocks have finite values.
"""Softmax in two launches: parts of each row find their maximum and sum, then blocks merge these and normalise.

A few long rows fill the whole GPU in this way, where one program for each row would leave most of it idle.
"""

import torch
import triton
import triton.language as tl

BLOCK = 2048
MAX_PARTS = 8


@triton.jit
def part_kernel(
    x_ptr,  # (n_rows, n_cols), columns contiguous
    m_ptr,  # (n_rows, n_parts) fp32, maximum of each part
    d_ptr,  # (n_rows, n_parts) fp32, sum of exp(x - maximum) of each part
    n_cols,
    steps,  # blocks of a part
    stride_x,
    BLOCK: tl.constexpr,
):
    """Program (i, p) folds part p of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK) + part * (BLOCK * steps)
    m = -float("inf")
    d = 0.0
    for step in range(0, steps):
        cols = lanes + step * BLOCK
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    slot = row * tl.num_programs(axis=1) + part
    tl.store(m_ptr + slot, m)
    tl.store(d_ptr + slot, d)


@triton.jit
def normalise_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, n_parts, stride_x, stride_y, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Program (i, b) writes block b of row i; each merges the parts of its row again, which are few."""
    row = tl.program_id(axis=0).to(tl.int64)
    parts = tl.arange(0, PARTS)
    slots = row * n_parts + parts
    ms = tl.load(m_ptr + slots, mask=parts < n_parts, other=-float("inf"))
    ds = tl.load(d_ptr + slots, mask=parts < n_parts, other=0.0)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = tl.arange(0, BLOCK) + start
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = tl.arange(0, BLOCK) + start
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); rows of x and out may lie any distance apart."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    blocks = triton.cdiv(n_cols, block)
    n_parts = min(blocks, MAX_PARTS)
    steps = blocks // n_parts
    m = torch.empty((n_rows, n_parts), device=x.device, dtype=torch.float32)
    d = torch.empty((n_rows, n_parts), device=x.device, dtype=torch.float32)
    part_kernel[(n_rows, n_parts)](x, m, d, n_cols, steps, x.stride(0), BLOCK=block, num_warps=4)
    normalise_kernel[(n_rows, blocks)](
        x,
        out,
        m,
        d,
        n_cols,
        n_parts,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        PARTS=triton.next_power_of_2(n_parts),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype)
    block = min(triton.next_power_of_2(n_cols), 8192)
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
