# labs/lab2_online_softmax/online_softmax.py | right | Right. Unusual: fewer than 128 rows of more than 8192 columns are divided into chunks, with a second launch, in both passes: the first stores m and d (or the sum of y * dy) of each chunk to a workspace in fp32, the second combines them and computes its chunk. Other matrices have one program a row.
"""Softmax over rows and its gradient; where a matrix has few, long rows, each row is shared by many programs.

Many rows: one program a row. Few long rows: a first launch reduces each chunk of a row to one or two numbers,
a second launch combines the numbers of its row and computes its chunk.
"""

import torch
import triton
import triton.language as tl

CHUNK = 8192  # columns of a program in a shared row
BLOCK_LIMIT = 16384  # columns that a program has in registers in a row of its own
MOST_CHUNKS = 1024
FEW_ROWS = 128


@triton.jit
def get(row_ptr, cols, n_cols, other):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def finite(m):
    """m, or 0 where m is -inf: a shift for exponents of which all are -inf."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def own_row_forward(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = get(x_row, start + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - finite(m_new)) + tl.sum(tl.exp(x - finite(m_new)), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = get(x_row, start + lanes, n_cols, -float("inf"))
        put(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def chunk_state(x_ptr, m_ptr, d_ptr, n_cols, n_chunks, stride_x, CHUNK: tl.constexpr):
    """Program (i, k): maximum of chunk k of row i, and the sum relative to it."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    x = get(x_ptr + row * stride_x, chunk * CHUNK + tl.arange(0, CHUNK), n_cols, -float("inf"))
    m = tl.max(x, axis=0)
    tl.store(m_ptr + row * n_chunks + chunk, m)
    tl.store(d_ptr + row * n_chunks + chunk, tl.sum(tl.exp(x - finite(m)), axis=0))


@triton.jit
def chunk_forward(
    x_ptr,
    m_ptr,
    d_ptr,
    y_ptr,
    n_cols,
    n_chunks,
    stride_x,
    stride_y,
    CHUNK: tl.constexpr,
    STATES: tl.constexpr,
):
    """Program (i, k): m and d of row i from those of its chunks, then y of chunk k."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunks = tl.arange(0, STATES)
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    ms = get(m_ptr + row * n_chunks, chunks, n_chunks, -float("inf"))
    ds = get(d_ptr + row * n_chunks, chunks, n_chunks, 0.0)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    x = get(x_ptr + row * stride_x, cols, n_cols, -float("inf"))
    put(y_ptr + row * stride_y, cols, n_cols, tl.exp(x - m) / d)


@triton.jit
def own_row_backward(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(get(dy_row, cols, n_cols, 0.0) * get(y_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        put(dx_row, cols, n_cols, get(y_row, cols, n_cols, 0.0) * (get(dy_row, cols, n_cols, 0.0) - s))


@triton.jit
def chunk_product(dy_ptr, y_ptr, s_ptr, n_cols, n_chunks, stride_dy, stride_y, CHUNK: tl.constexpr):
    """Program (i, k): sum of y * dy over chunk k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    products = get(dy_ptr + row * stride_dy, cols, n_cols, 0.0) * get(y_ptr + row * stride_y, cols, n_cols, 0.0)
    tl.store(s_ptr + row * n_chunks + chunk, tl.sum(products, axis=0))


@triton.jit
def chunk_backward(
    dy_ptr,
    y_ptr,
    s_ptr,
    dx_ptr,
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    stride_dx,
    CHUNK: tl.constexpr,
    STATES: tl.constexpr,
):
    """Program (i, k): the sum of row i from those of its chunks, then dx of chunk k."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * CHUNK + tl.arange(0, CHUNK)
    s = tl.sum(get(s_ptr + row * n_chunks, tl.arange(0, STATES), n_chunks, 0.0), axis=0)
    dy = get(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
    y = get(y_ptr + row * stride_y, cols, n_cols, 0.0)
    put(dx_ptr + row * stride_dx, cols, n_cols, y * (dy - s))


def chunks_of(n_rows: int, n_cols: int) -> int:
    """Into how many chunks a row is divided; 1 where a program has a row of its own."""
    n_chunks = triton.cdiv(n_cols, CHUNK)
    return n_chunks if n_rows < FEW_ROWS and n_chunks <= MOST_CHUNKS else 1


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    n_chunks = chunks_of(n_rows, n_cols)
    if n_chunks == 1:
        block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
        warps = 8 if block == BLOCK_LIMIT else 4
        own_row_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
        return out
    m = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    states = triton.next_power_of_2(n_chunks)
    grid = (n_rows, n_chunks)
    chunk_state[grid](x, m, d, n_cols, n_chunks, x.stride(0), CHUNK=CHUNK, num_warps=8)
    chunk_forward[grid](
        x, m, d, out, n_cols, n_chunks, x.stride(0), out.stride(0), CHUNK=CHUNK, STATES=states, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    n_chunks = chunks_of(n_rows, n_cols)
    if n_chunks == 1:
        block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
        warps = min(max(block // 512, 4), 32)
        own_row_backward[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
        return out
    s = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=y.device)
    states = triton.next_power_of_2(n_chunks)
    grid = (n_rows, n_chunks)
    chunk_product[grid](dy, y, s, n_cols, n_chunks, strides[0], strides[1], CHUNK=CHUNK, num_warps=16)
    chunk_backward[grid](dy, y, s, out, n_cols, n_chunks, *strides, CHUNK=CHUNK, STATES=states, num_warps=16)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
