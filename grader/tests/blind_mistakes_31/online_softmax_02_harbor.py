# labs/lab2_online_softmax/online_softmax.py | error | In softmax_forward the grid is `(n_rows)`, which is an int and no tuple, so the launch `forward_kernel[grid]` of every call fails inside Triton (TypeError: object of type 'int' has no len()); it should be `(n_rows,)`.
import torch
import triton
import triton.language as tl

MAX_BLOCK = 8192


@triton.jit
def load_block(row_ptr, start, n_cols, FILL: tl.constexpr, BLOCK: tl.constexpr):
    """A block of a row in fp32, with FILL in the lanes behind its end."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=FILL).to(tl.float32)


@triton.jit
def store_block(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + i * x_stride
    y_row = y_ptr + i * y_stride

    biggest = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row, start, n_cols, -float("inf"), BLOCK)
        new_biggest = tl.maximum(biggest, tl.max(x, axis=0))
        zero = tl.where(new_biggest == -float("inf"), 0.0, new_biggest)
        total = total * tl.exp(biggest - zero) + tl.sum(tl.exp(x - zero), axis=0)
        biggest = new_biggest

    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row, start, n_cols, -float("inf"), BLOCK)
        store_block(y_row, start, n_cols, tl.exp(x - biggest) / total, BLOCK)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + i * dy_stride
    y_row = y_ptr + i * y_stride
    dx_row = dx_ptr + i * dx_stride

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        g = load_block(dy_row, start, n_cols, 0.0, BLOCK)
        y = load_block(y_row, start, n_cols, 0.0, BLOCK)
        dot += tl.sum(g * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        g = load_block(dy_row, start, n_cols, 0.0, BLOCK)
        y = load_block(y_row, start, n_cols, 0.0, BLOCK)
        store_block(dx_row, start, n_cols, y * (g - dot), BLOCK)


def block_of(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), MAX_BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of a matrix."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_like(x)
    grid = (n_rows)
    forward_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_of(n_cols), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx = y * (dy - sum(y * dy)), row by row."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty_like(dy)
    grid = (n_rows,)
    backward_kernel[grid](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_of(n_cols),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
