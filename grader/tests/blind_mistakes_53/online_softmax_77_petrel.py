# labs/lab2_online_softmax/online_softmax.py | corner | In `part_kernel` the load has `mask=cols < n_cols`; it should be `cols < last`, the end of the part. The last block of a part also counts columns of the next part, so d is too large, where `n_cols > 8192` and `n_rows < 132` and the part, ceil(n_cols / 8) columns, is no multiple of 1024 (16385, 20011, 40000; 24576 and 131072 are right).
"""Online softmax: one program for each row, or several where a matrix has few and long rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PARTS = 8  # of a long row
PART_BLOCK = 1024
LONG = 8192
FEW = 132


@triton.jit
def fold(m, d, x):
    """Maximum and sum with one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m, d = fold(m, d, x)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def part_kernel(x_ptr, m_ptr, d_ptr, n_cols, chunk, stride_x, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Program (i, k) finds maximum and sum of part k of row i, `chunk` columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row_ptr = x_ptr + row * stride_x
    first = part * chunk
    last = tl.minimum(first + chunk, n_cols)
    m = -float("inf")
    d = 0.0
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x)
    tl.store(m_ptr + row * PARTS + part, m)
    tl.store(d_ptr + row * PARTS + part, d)


@triton.jit
def join_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, chunk, stride_x, stride_y, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (i, k) normalises part k of row i, with maximum and sum of all parts of the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    ms = tl.load(m_ptr + row * PARTS + tl.arange(0, PARTS))
    ds = tl.load(d_ptr + row * PARTS + tl.arange(0, PARTS))
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    first = part * chunk
    last = tl.minimum(first + chunk, n_cols)
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < last
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    if n_cols > LONG and n_rows < FEW:
        ms = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
        ds = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
        chunk = triton.cdiv(n_cols, PARTS)
        part_kernel[(n_rows, PARTS)](
            x, ms, ds, n_cols, chunk, x.stride(0), PARTS=PARTS, BLOCK=PART_BLOCK, num_warps=4
        )
        join_kernel[(n_rows, PARTS)](
            x, out, ms, ds, n_cols, chunk, x.stride(0), out.stride(0),
            PARTS=PARTS, BLOCK=PART_BLOCK, num_warps=4,
        )
        return out
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == 16384 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 32),
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
