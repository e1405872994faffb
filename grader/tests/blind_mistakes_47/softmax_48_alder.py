# labs/lab4_production_slice/softmax.py | corner | In `part_sums_kernel` (`fused_softmax_backward`), `tl.store(sums_ptr + row * parts + part, ...)` uses a row of `parts` sums, while the buffer and `part_gradient_kernel` have rows of SLOTS, the next power of two: it should be `row * slots + part`. dx is wrong for rows of more than 32768 columns whose number of blocks of 16384 is no power of two (3 blocks for 40000), where there is more than one row; a single row, and rows of 1, 2, 4 or 8 blocks, are right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = tl.full((), LOWEST, dtype=tl.float32)
    total = tl.full((), 0.0, dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, float("-inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def whole_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) for rows of one block; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
    y = load(y_ptr + row * stride_y, cols, N_COLS)
    products = tl.sum(y * dy, axis=0)
    store(dx_ptr + row * stride_dx, cols, N_COLS, y * (dy - products))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def part_sums_kernel(
    dy_ptr, y_ptr, sums_ptr, parts, stride_dy, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The sum of y * dy over one of the parts of a row, BLOCK columns; there is a program for each part."""
    row = (tl.program_id(axis=0) // parts).to(tl.int64)
    part = tl.program_id(axis=0) % parts
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
    y = load(y_ptr + row * stride_y, cols, N_COLS)
    tl.store(sums_ptr + row * parts + part, tl.sum(y * dy, axis=0))


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def part_gradient_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    parts,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """dx of one of the parts of a row. SLOTS is the number of parts, rounded up to a power of two.

    The slots of a row that no part has hold 0.
    """
    row = (tl.program_id(axis=0) // parts).to(tl.int64)
    part = tl.program_id(axis=0) % parts
    slots = tl.arange(0, SLOTS)
    products = tl.sum(tl.load(sums_ptr + row * SLOTS + slots), axis=0)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
    y = load(y_ptr + row * stride_y, cols, N_COLS)
    store(dx_ptr + row * stride_dx, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given. Rows of more than
    one block are split among programs, which is faster where there are few of them.
    """
    n_rows, n_cols = dy.shape
    out = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype) if out is None else out
    strides = dy.stride(0), y.stride(0)
    block = block_of(n_cols)
    parts = triton.cdiv(n_cols, block)
    if parts == 1:
        launch = on(whole_gradient_kernel, dy)[(n_rows,)]
        launch(dy, y, out, *strides, out.stride(0), N_COLS=n_cols, BLOCK=block)
        return out
    slots = triton.next_power_of_2(parts)
    sums = torch.zeros((n_rows, slots), device=dy.device, dtype=torch.float32)
    grid = (n_rows * parts,)
    on(part_sums_kernel, dy)[grid](dy, y, sums, parts, *strides, N_COLS=n_cols, BLOCK=block)
    launch = on(part_gradient_kernel, dy)[grid]
    launch(dy, y, sums, out, parts, *strides, out.stride(0), N_COLS=n_cols, BLOCK=block, SLOTS=slots)
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
