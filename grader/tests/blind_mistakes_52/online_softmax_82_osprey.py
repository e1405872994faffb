# labs/lab2_online_softmax/online_softmax.py | corner | In `chunk_sums_kernel`, `place = row * tl.num_programs(axis=1) + chunk` steps by the number of chunks, while the scratch has rows of `parts` (the next power of two) and `chunk_divide_kernel` reads at `row * PARTS + part`. It should step by PARTS. Wrong from row 1 on for 2 to 127 rows of more than 8192 columns whose number of chunks of 8192 is no power of two, e.g. (3, 16385), (2, 40000), (7, 20011); all other sizes and row 0 are right.
"""Online softmax, where a few long rows are cut into chunks that many programs share."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
CHUNK = 8192
FEW_ROWS = 128  # fewer programs than this leave multiprocessors idle


@triton.jit
def row_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i: one sweep for the maximum m and the sum d, one for y."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def chunk_sums_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, CHUNK: tl.constexpr):
    """Maximum and sum of one chunk of one row; program (i, c) owns chunk c of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    d = tl.sum(tl.exp(x - shift), axis=0)
    place = row * tl.num_programs(axis=1) + chunk
    tl.store(m_ptr + place, m)
    tl.store(d_ptr + place, d)


@triton.jit
def chunk_divide_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, n_chunks, stride_x, stride_y, CHUNK: tl.constexpr, PARTS: tl.constexpr
):
    """y of one chunk, from the maxima and sums of all chunks of its row."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.arange(0, PARTS)
    m_parts = tl.load(m_ptr + row * PARTS + part, mask=part < n_chunks, other=-float("inf"))
    d_parts = tl.load(d_ptr + row * PARTS + part, mask=part < n_chunks, other=0.0)
    m = tl.max(m_parts, axis=0)
    d = tl.sum(d_parts * tl.exp(m_parts - m), axis=0)
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row + cols, dx, mask=cols < n_cols, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_rows < FEW_ROWS and n_cols > CHUNK:
        n_chunks = triton.cdiv(n_cols, CHUNK)
        parts = triton.next_power_of_2(n_chunks)
        m = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
        d = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
        grid = (n_rows, n_chunks)
        chunk_sums_kernel[grid](x, m, d, n_cols, x.stride(0), CHUNK=CHUNK, num_warps=8)
        chunk_divide_kernel[grid](
            x, out, m, d, n_cols, n_chunks, x.stride(0), out.stride(0), CHUNK=CHUNK, PARTS=parts, num_warps=8
        )
        return out
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else 4
    row_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
