# labs/lab2_online_softmax/online_softmax.py | two mistakes | Both in softmax_backward. (1) In `backward_kernel` `products = tl.zeros(...)` stands before `while row < n_rows:`, not in it, so the sum of a program's earlier rows goes into that of its later ones. Shows for more than 132 rows (149 x 3, 1000 x 3001), from row 132 on. (2) In the host function `n_blocks = max(n_cols // block, 1)` should be `triton.cdiv(n_cols, block)`. Shows for rows of more than 4096 columns that are no multiple of 4096 (16385, 40000, 20011): the last columns are not in the sum, and not written.
"""Online softmax by one program for each row; its gradient by as many programs as the GPU holds, row after row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
PROGRAMS = 132  # one for each multiprocessor of an H200


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y for row i: one sweep for its maximum and sum, one for the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(
            x_row + start + lanes,
            mask=start + lanes < n_cols,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(
            x_row + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_blocks,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx for the rows i, i + programs, i + 2 * programs, ..., each in n_blocks blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        for k in range(n_blocks):
            cols = k * BLOCK + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            products += y.to(tl.float32) * dy.to(tl.float32)
        s = tl.sum(products, axis=0)
        for k in range(n_blocks):
            cols = k * BLOCK + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 4 if block <= 4096 else 8
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    n_blocks = max(n_cols // block, 1)
    grid = (min(n_rows, PROGRAMS),)
    backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        n_blocks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4 if block <= 1024 else 8,
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
