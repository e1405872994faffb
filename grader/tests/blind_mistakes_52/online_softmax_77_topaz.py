# labs/lab2_online_softmax/online_softmax.py | error | In `softmax_backward`, `sums = sums.sum(dim=1)` computes with a tensor in host code, which the labs do not permit (POLICY: `sum` is no permitted method of a tensor, only kernels compute). The sums of the pieces of a row should be added in a kernel. The check rejects the file; the line itself runs for rows of more than 4096 columns.
"""Online softmax. The gradient is split into pieces of rows, so that few long rows keep the whole GPU busy."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
PIECE = 4096  # columns of a row that one program of the backward pass takes


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr
):
    """Softmax of one row for each program. A row of one block stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            x = tl.load(x_row_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            x = tl.load(x_row_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + start + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def pieces_kernel(dy_ptr, y_ptr, sums_ptr, n_cols, n_pieces, stride_dy, stride_y, BLOCK: tl.constexpr):
    """sums[i, k] = sum of y * dy over piece k of row i."""
    pid = tl.program_id(axis=0)
    row = (pid // n_pieces).to(tl.int64)
    cols = pid % n_pieces * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(sums_ptr + pid, tl.sum(dy * y, axis=0))


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    n_cols,
    n_pieces,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx of one piece, with the sum of its whole row."""
    pid = tl.program_id(axis=0)
    row = (pid // n_pieces).to(tl.int64)
    cols = pid % n_pieces * BLOCK + tl.arange(0, BLOCK)
    s = tl.load(sums_ptr + row)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=min(max(block // 512, 1), 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax: sums of pieces, then sums of rows, then dx."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), PIECE)
    n_pieces = triton.cdiv(n_cols, block)
    warps = min(max(block // 512, 1), 8)
    grid = (n_rows * n_pieces,)
    sums = torch.empty((n_rows, n_pieces), dtype=torch.float32, device=dy.device)
    pieces_kernel[grid](
        dy, y, sums, n_cols, n_pieces, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps
    )
    if n_pieces > 1:
        sums = sums.sum(dim=1)
    gradient_kernel[grid](
        dy,
        y,
        sums,
        out,
        n_cols,
        n_pieces,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and softmax_backward, for autograd."""

    @staticmethod
    def forward(ctx, x):
        """Return y and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, differentiable."""
    return OnlineSoftmax.apply(x)
