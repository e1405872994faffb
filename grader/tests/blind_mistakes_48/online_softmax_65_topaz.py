# labs/lab2_online_softmax/online_softmax.py | two mistakes | In `gradient_walk_kernel`: (1) `products = tl.zeros((BLOCK,), dtype=tl.float32)` stands before the `while` loop over rows; it should be inside, as the sum of a program's second row still holds the first. Shows with more than 128 rows. (2) `dx_ptr + (row * stride_dx + cols)` multiplies an int32 row; it should be `row.to(tl.int64) * stride_dx`. Shows where the rows of `out` lie so far apart that offsets pass 2^31, also with 3 rows.
"""Online softmax and its gradient with a fixed number of programs, each of which walks over many rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
PROGRAMS = 128


@triton.jit
def softmax_walk_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y for every row whose number is that of the program, modulo the number of programs."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0)
    while row < n_rows:
        x_row = x_ptr + row.to(tl.int64) * stride_x
        y_row = y_ptr + row.to(tl.int64) * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def gradient_walk_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx for the same rows; the products are added lane by lane, and reduced once for each row."""
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    row = tl.program_id(axis=0)
    while row < n_rows:
        dy_row = dy_ptr + row.to(tl.int64) * stride_dy
        y_row = y_ptr + row.to(tl.int64) * stride_y
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last")
            products += dy.to(tl.float32) * y.to(tl.float32)
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_ptr + (row * stride_dx + cols), dx.to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_walk_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), FORWARD_BLOCK),
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    gradient_walk_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK),
        num_warps=8,
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
