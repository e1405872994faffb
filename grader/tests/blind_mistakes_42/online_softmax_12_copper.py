# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: the columns of a long row are split among programs of a flat grid (row and chunk from pid), with a first launch for partial (m, d) or partial sums in fp32 workspaces, and a second launch that joins them; a row of one chunk takes one launch, by the constexpr PARTS.
"""Softmax with the columns of a long row shared among programs: one launch for statistics, one for the result."""

import torch
import triton
import triton.language as tl

CHUNK = 8192  # columns of one program


@triton.jit
def load_chunk(ptr, row, stride, cols, n_cols, fill):
    """Columns `cols` of a row in fp32."""
    return tl.load(ptr + row.to(tl.int64) * stride + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def store_chunk(ptr, row, stride, cols, n_cols, values):
    """Columns `cols` of a row, rounded to its dtype."""
    tl.store(ptr + row.to(tl.int64) * stride + cols, values.to(ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def top_and_sum(x):
    """Maximum m of a chunk and its sum of exp(x - m); (-inf, 0) where all of it is -inf."""
    m = tl.max(x, axis=0)
    return m, tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)


@triton.jit
def statistics_kernel(x_ptr, m_ptr, d_ptr, n_cols, chunks, stride_x, BLOCK: tl.constexpr):
    """m and d of each chunk, (n_rows, chunks) both; program i * chunks + k has chunk k of row i."""
    pid = tl.program_id(0)
    cols = pid % chunks * BLOCK + tl.arange(0, BLOCK)
    m, d = top_and_sum(load_chunk(x_ptr, pid // chunks, stride_x, cols, n_cols, -float("inf")))
    tl.store(m_ptr + pid, m)
    tl.store(d_ptr + pid, d)


@triton.jit
def normalise_kernel(
    x_ptr, m_ptr, d_ptr, y_ptr, n_cols, chunks, stride_x, stride_y, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """y of one chunk; the statistics of the row's chunks are joined first, or made here if there is one chunk."""
    pid = tl.program_id(0)
    row = pid // chunks
    cols = pid % chunks * BLOCK + tl.arange(0, BLOCK)
    x = load_chunk(x_ptr, row, stride_x, cols, n_cols, -float("inf"))
    if PARTS == 1:
        m, d = top_and_sum(x)
    else:
        parts = tl.arange(0, PARTS)
        m_parts = load_chunk(m_ptr, row, chunks, parts, chunks, -float("inf"))
        m = tl.max(m_parts, axis=0)
        d = tl.sum(load_chunk(d_ptr, row, chunks, parts, chunks, 0.0) * tl.exp(m_parts - m), axis=0)
    store_chunk(y_ptr, row, stride_y, cols, n_cols, tl.exp(x - m) / d)


@triton.jit
def dot_kernel(dy_ptr, y_ptr, s_ptr, n_cols, chunks, stride_dy, stride_y, BLOCK: tl.constexpr):
    """sum of y * dy over each chunk, (n_rows, chunks)."""
    pid = tl.program_id(0)
    cols = pid % chunks * BLOCK + tl.arange(0, BLOCK)
    dy = load_chunk(dy_ptr, pid // chunks, stride_dy, cols, n_cols, 0.0)
    y = load_chunk(y_ptr, pid // chunks, stride_y, cols, n_cols, 0.0)
    tl.store(s_ptr + pid, tl.sum(dy * y, axis=0))


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    s_ptr,
    dx_ptr,
    n_cols,
    chunks,
    stride_dy,
    stride_y,
    stride_dx,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of one chunk, from the sums of all chunks of its row."""
    pid = tl.program_id(0)
    row = pid // chunks
    cols = pid % chunks * BLOCK + tl.arange(0, BLOCK)
    dy = load_chunk(dy_ptr, row, stride_dy, cols, n_cols, 0.0)
    y = load_chunk(y_ptr, row, stride_y, cols, n_cols, 0.0)
    if PARTS == 1:
        s = tl.sum(dy * y, axis=0)
    else:
        s = tl.sum(load_chunk(s_ptr, row, chunks, tl.arange(0, PARTS), chunks, 0.0), axis=0)
    store_chunk(dx_ptr, row, stride_dx, cols, n_cols, y * (dy - s))


def plan(x: torch.Tensor) -> tuple:
    """Columns of a program, programs of a row, all programs, and the warps of each."""
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), CHUNK)
    chunks = triton.cdiv(n_cols, block)
    return block, chunks, n_rows * chunks, min(max(block // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), any row stride."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block, chunks, programs, warps = plan(x)
    n_cols = x.shape[1]
    m = torch.empty((programs,), dtype=torch.float32, device=x.device)
    d = torch.empty((programs,), dtype=torch.float32, device=x.device)
    if chunks > 1:
        statistics_kernel[(programs,)](x, m, d, n_cols, chunks, x.stride(0), BLOCK=block, num_warps=warps)
    parts = triton.next_power_of_2(chunks)
    normalise_kernel[(programs,)](
        x, m, d, out, n_cols, chunks, x.stride(0), out.stride(0), PARTS=parts, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y, both of any row stride."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    block, chunks, programs, warps = plan(dy)
    n_cols = dy.shape[1]
    strides = (dy.stride(0), y.stride(0))
    s = torch.empty((programs,), dtype=torch.float32, device=dy.device)
    if chunks > 1:
        dot_kernel[(programs,)](dy, y, s, n_cols, chunks, *strides, BLOCK=block, num_warps=warps)
    parts = triton.next_power_of_2(chunks)
    gradient_kernel[(programs,)](
        dy, y, s, out, n_cols, chunks, *strides, out.stride(0), PARTS=parts, BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y, which is also what backward needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from a dy of any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
