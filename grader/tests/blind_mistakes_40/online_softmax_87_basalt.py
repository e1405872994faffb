# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In the first loop of `forward_kernel`, `tl.load(x_blocks, boundary_check=(0,), padding_option="zero")` puts 0 into lanes past the end, which go into the maximum and the sum; they should be -inf, by `tl.where(columns < n_cols, x, -float("inf"))`. Shows where n_cols is no multiple of the block. (2) `(row * stride_x).to(tl.int64)` and `(row * stride_y).to(tl.int64)` convert after the product, which wraps in int32; it should be `row.to(tl.int64) * stride_x` (and so for y). Shows where the rows of x or out reach beyond 2^31 elements.
"""Online softmax with block pointers: the compiler checks the ends of the rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0)
    # Offsets within the matrix may be beyond 2^31.
    x_row = x_ptr + (row * stride_x).to(tl.int64)
    y_row = y_ptr + (row * stride_y).to(tl.int64)

    m = -float("inf")
    d = 0.0
    x_blocks = tl.make_block_ptr(x_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_blocks = tl.advance(x_blocks, (BLOCK,))

    x_blocks = tl.make_block_ptr(x_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_blocks = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_blocks, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_blocks = tl.advance(x_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    s = 0.0
    dy_blocks = tl.make_block_ptr(dy_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_blocks = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))

    dy_blocks = tl.make_block_ptr(dy_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_blocks = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    dx_blocks = tl.make_block_ptr(dx_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_blocks, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
        dx_blocks = tl.advance(dx_blocks, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else 4
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 8 if block == BACKWARD_BLOCK else 4
    backward_kernel[(n_rows,)](
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
