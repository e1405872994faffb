# labs/lab2_online_softmax/online_softmax.py | corner | Exercise softmax_backward (and the gradient of softmax), kernel `chunk_gradient_kernel`: `sums_ptr + row * n_chunks + parts` reads the buffer as (n_rows, n_chunks), but `chunk_sums_kernel` stores it as (n_chunks, n_rows) with `sums_ptr + chunk * n_rows + row`; it should be `sums_ptr + parts * n_rows + row` (with n_rows passed). Shows only for rows of more than 8192 columns in matrices of 2 to 127 rows; one row, short rows and 128 or more rows are right.
"""Online softmax and its gradient. A gradient of few long rows is split over more programs, in two launches."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
CHUNK = 8192  # columns of a program in the gradient of long rows
FEW_ROWS = 128  # below this many rows a program for each row leaves a GPU idle


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
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
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def load_pair(dy_ptr, y_ptr, cols, n_cols):
    dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return dy, y


@triton.jit
def row_gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """One program for each row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy, y = load_pair(dy_row_ptr, y_row_ptr, start + tl.arange(0, BLOCK), n_cols)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy, y = load_pair(dy_row_ptr, y_row_ptr, cols, n_cols)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def chunk_sums_kernel(dy_ptr, y_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """sums[chunk, row] = sum of y * dy over one chunk of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    dy, y = load_pair(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    tl.store(sums_ptr + chunk * n_rows + row, tl.sum(dy * y, axis=0))


@triton.jit
def chunk_gradient_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,  # the power of two that n_chunks fits in
):
    """One chunk of one row of dx, after the sums of all chunks of this row were added."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, CHUNKS)
    s = tl.sum(tl.load(sums_ptr + row * n_chunks + parts, mask=parts < n_chunks, other=0.0), axis=0)
    dy, y = load_pair(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 16 if block > 8192 else max(1, min(8, block // 1024))
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    block = min(triton.next_power_of_2(n_cols), CHUNK)
    warps = max(1, block // 512)
    if n_cols <= CHUNK or n_rows >= FEW_ROWS:
        row_gradient_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
        return out
    n_chunks = triton.cdiv(n_cols, block)
    sums = torch.empty((n_chunks, n_rows), dtype=torch.float32, device=dy.device)
    chunk_sums_kernel[(n_rows, n_chunks)](
        dy, y, sums, n_rows, n_cols, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps
    )
    chunk_gradient_kernel[(n_rows, n_chunks)](
        dy,
        y,
        sums,
        out,
        n_cols,
        n_chunks,
        *strides,
        BLOCK=block,
        CHUNKS=triton.next_power_of_2(n_chunks),
        num_warps=warps,
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
