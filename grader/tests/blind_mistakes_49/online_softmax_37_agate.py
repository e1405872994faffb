# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `gradient_kernel` `products = tl.sum(last_y * last_dy, axis=0)` overwrites the sum over the whole blocks; it should be `products += ...`. Shows in rows with at least one whole block: more than 2048 columns, or a number of columns that is a power of two, in softmax_backward and in softmax. (2) In `OnlineSoftmax.backward` `if dy.stride(1) == 0:` copies only an expanded dy; it should be `if dy.stride(1) != 1:`, or always `dy.contiguous()`. Shows in the gradient of softmax for a transposed dy and for one with every second column, also in short rows such as (5, 129).
"""Online softmax and its gradient: whole blocks without a mask, and then the rest of the row with one."""

import torch
import triton
import triton.language as tl

MOST_COLUMNS = 2048


@triton.jit
def fold(top, total, x):
    """Maximum and sum with one more block of columns."""
    new_top = tl.maximum(top, tl.max(x, axis=0))
    shift = tl.where(new_top == -float("inf"), 0.0, new_top)
    return new_top, total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK  # columns in whole blocks
    rest = whole + lanes
    top = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        top, total = fold(top, total, x)
    last = tl.load(x_row + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
    top, total = fold(top, total, last)
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        tl.store(y_row + start + lanes, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty))
    tl.store(y_row + rest, (tl.exp(last - top) / total).to(y_ptr.dtype.element_ty), mask=rest < n_cols)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - products) for row i in program i, products = sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    products = tl.full((), 0.0, tl.float32)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        products += tl.sum(y * dy, axis=0)
    # The rest stays in registers, so it is read once.
    last_dy = tl.load(dy_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    last_y = tl.load(y_row + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
    products = tl.sum(last_y * last_dy, axis=0)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - products)).to(dx_ptr.dtype.element_ty))
    last_dx = last_y * (last_dy - products)
    tl.store(dx_row + rest, last_dx.to(dx_ptr.dtype.element_ty), mask=rest < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), MOST_COLUMNS)
    softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block > 512 else 1
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), MOST_COLUMNS)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 512 else 2,
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
        """dx from dy; a gradient that autograd has expanded is laid out in full first."""
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
