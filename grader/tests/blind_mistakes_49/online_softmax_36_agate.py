# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: with fewer than 256 rows a long row is shared by several programs, which leave partial maxima and sums in a workspace for a second launch; else one launch does all (`PARTS == 1`).
"""Softmax and its gradient; where there are few long rows, several programs share a row in two launches."""

import torch
import triton
import triton.language as tl

BLOCK = 8192  # columns that a program takes at a time
FEW_ROWS = 256  # with fewer rows than this a row is shared
MOST_PARTS = 1024


@triton.jit
def load_row(row_ptr, cols, n_cols, filler):
    """These columns in fp32; filler past the end of the row."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=filler).to(tl.float32)


@triton.jit
def top_and_total(x_row, first, width, n_cols, BLOCK: tl.constexpr):
    """Maximum of width columns from first on, as far as they exist, and their sum of exp(x - maximum)."""
    top = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(first, first + width, BLOCK):
        x = load_row(x_row, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
        new_top = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = new_top
    return top, total


@triton.jit
def inner_product(dy_row, y_row, first, width, n_cols, BLOCK: tl.constexpr):
    """Sum of y * dy over width columns from first on, as far as they exist."""
    s = tl.full((), 0.0, tl.float32)
    for start in range(first, first + width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(load_row(dy_row, cols, n_cols, 0.0) * load_row(y_row, cols, n_cols, 0.0), axis=0)
    return s


@triton.jit
def parts_of_forward(x_ptr, tops_ptr, totals_ptr, n_cols, width, stride_x, BLOCK: tl.constexpr):
    """Maximum and sum of part j of row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.program_id(axis=1)
    top, total = top_and_total(x_ptr + i * stride_x, j * width, width, n_cols, BLOCK)
    place = i * tl.num_programs(axis=1) + j
    tl.store(tops_ptr + place, top)
    tl.store(totals_ptr + place, total)


@triton.jit
def forward_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    totals_ptr,
    n_cols,
    width,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,  # 1, or a power of two with room for the parts of a row
):
    """Part j of row i of the result."""
    i = tl.program_id(axis=0).to(tl.int64)
    first = tl.program_id(axis=1) * width
    x_row = x_ptr + i * stride_x
    if PARTS == 1:
        top, total = top_and_total(x_row, first, width, n_cols, BLOCK)
    else:
        n_parts = tl.num_programs(axis=1)
        j = tl.arange(0, PARTS)
        tops = tl.load(tops_ptr + i * n_parts + j, mask=j < n_parts, other=-float("inf"))
        totals = tl.load(totals_ptr + i * n_parts + j, mask=j < n_parts, other=0.0)
        top = tl.max(tops, axis=0)
        total = tl.sum(totals * tl.exp(tops - top), axis=0)
    for start in range(first, first + width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_row(x_row, cols, n_cols, -float("inf")) - top) / total
        tl.store(y_ptr + i * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def parts_of_backward(dy_ptr, y_ptr, sums_ptr, n_cols, width, stride_dy, stride_y, BLOCK: tl.constexpr):
    """Sum of y * dy over part j of row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.program_id(axis=1)
    s = inner_product(dy_ptr + i * stride_dy, y_ptr + i * stride_y, j * width, width, n_cols, BLOCK)
    tl.store(sums_ptr + i * tl.num_programs(axis=1) + j, s)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    sums_ptr,
    n_cols,
    width,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Part j of row i of the gradient."""
    i = tl.program_id(axis=0).to(tl.int64)
    first = tl.program_id(axis=1) * width
    dy_row = dy_ptr + i * stride_dy
    y_row = y_ptr + i * stride_y
    if PARTS == 1:
        s = inner_product(dy_row, y_row, first, width, n_cols, BLOCK)
    else:
        n_parts = tl.num_programs(axis=1)
        j = tl.arange(0, PARTS)
        s = tl.sum(tl.load(sums_ptr + i * n_parts + j, mask=j < n_parts, other=0.0), axis=0)
    for start in range(first, first + width, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load_row(y_row, cols, n_cols, 0.0) * (load_row(dy_row, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + i * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def plan(n_rows: int, n_cols: int):
    """Width of a block, parts of a row, and columns of a part, a multiple of the block."""
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    blocks = triton.cdiv(n_cols, block)
    each = triton.cdiv(blocks, MOST_PARTS) if n_rows < FEW_ROWS else blocks
    return block, triton.cdiv(blocks, each), each * block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, parts, width = plan(n_rows, n_cols)
    warps = max(block // 1024, 1)
    tops = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
    totals = torch.empty((n_rows, parts), dtype=torch.float32, device=x.device)
    if parts > 1:
        parts_of_forward[(n_rows, parts)](
            x, tops, totals, n_cols, width, x.stride(0), BLOCK=block, num_warps=warps
        )
    forward_kernel[(n_rows, parts)](
        x,
        out,
        tops,
        totals,
        n_cols,
        width,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        PARTS=triton.next_power_of_2(parts),
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, parts, width = plan(n_rows, n_cols)
    warps = max(block // 512, 2)
    sums = torch.empty((n_rows, parts), dtype=torch.float32, device=dy.device)
    if parts > 1:
        parts_of_backward[(n_rows, parts)](
            dy, y, sums, n_cols, width, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps
        )
    backward_kernel[(n_rows, parts)](
        dy,
        y,
        out,
        sums,
        n_cols,
        width,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        PARTS=triton.next_power_of_2(parts),
        num_warps=warps,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
