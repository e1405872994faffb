# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_backward`, `SUMS=triton.next_power_of_2(n_cols // CHUNK)` should be `triton.next_power_of_2(n_chunks)`: `chunk_gradient_kernel` then leaves out the sum of the last chunk where `n_cols // 8192` is a power of two and n_cols is no multiple of 8192 (16385, 20011, 40000 columns; not 24576 or 131072), for fewer than 128 rows. s and all of dx of the row are off, also in the gradient of softmax.
"""Online softmax and its gradient; a few long rows are divided among many programs in the gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
CHUNK = 8192  # columns of a program where a row is divided
MANY_ROWS = 128  # so many rows keep the GPU busy without being divided


@triton.jit
def load_block(row_ptr, cols, n_cols, other):
    """Columns `cols` of a row in fp32, and `other` where the row has none."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_block(row_ptr, cols, n_cols, values):
    """Round values to the dtype of the row and store those that exist."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i: softmax of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row, start + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row, start + lanes, n_cols, -float("inf"))
        store_block(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def row_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i: the gradient of row i, in two sweeps."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row, start + lanes, n_cols, 0.0)
        y = load_block(y_row, start + lanes, n_cols, 0.0)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row, start + lanes, n_cols, 0.0)
        y = load_block(y_row, start + lanes, n_cols, 0.0)
        store_block(dx_row, start + lanes, n_cols, y * (dy - s))


@triton.jit
def chunk_sums_kernel(dy_ptr, y_ptr, sums_ptr, n_cols, n_chunks, stride_dy, stride_y, WIDTH: tl.constexpr):
    """Program (i, k): sums[i, k] = sum of y * dy over chunk k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * WIDTH + tl.arange(0, WIDTH)
    dy = load_block(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
    y = load_block(y_ptr + row * stride_y, cols, n_cols, 0.0)
    tl.store(sums_ptr + row * n_chunks + chunk, tl.sum(y * dy, axis=0))


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
    WIDTH: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Program (i, k): adds the sums of row i, then computes its chunk k."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * WIDTH + tl.arange(0, WIDTH)
    s = tl.sum(load_block(sums_ptr + row * n_chunks, tl.arange(0, SUMS), n_chunks, 0.0), axis=0)
    dy = load_block(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
    y = load_block(y_ptr + row * stride_y, cols, n_cols, 0.0)
    store_block(dx_ptr + row * stride_dx, cols, n_cols, y * (dy - s))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns contiguous, rows any distance apart."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    if n_cols <= CHUNK or n_rows >= MANY_ROWS:
        block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
        warps = min(max(block // 512, 4), 32)
        row_gradient_kernel[(n_rows,)](
            dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
        )
        return out
    n_chunks = triton.cdiv(n_cols, CHUNK)
    sums = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=dy.device)
    grid = (n_rows, n_chunks)
    chunk_sums_kernel[grid](
        dy, y, sums, n_cols, n_chunks, dy.stride(0), y.stride(0), WIDTH=CHUNK, num_warps=16
    )
    chunk_gradient_kernel[grid](
        dy,
        y,
        sums,
        out,
        n_cols,
        n_chunks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WIDTH=CHUNK,
        SUMS=triton.next_power_of_2(n_cols // CHUNK),
        num_warps=16,
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
