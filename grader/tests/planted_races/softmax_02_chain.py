# labs/lab4_production_slice/softmax.py | race | statistics_kernel, tops and totals (fp32 scratch tensors): program (row, k) with k > 0 loads in lines 30 and 31 the element (row, k - 1) that program (row, k - 1) stores in lines 35 and 36 of the same launch, for n_cols > 512; values right one program after the other
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
PART = 512  # columns of a program


@triton.jit
def statistics_kernel(
    x_ptr, tops_ptr, totals_ptr, stride_x, N_COLS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Maximum and sum of the first k + 1 blocks of row i, by program (i, k).

    They go to element (i, k) of tops and totals, (n_rows, PARTS) fp32: the last ones are those of the row.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    place = row * PARTS + part
    x = load(x_ptr + row * stride_x, part * BLOCK + tl.arange(0, BLOCK), N_COLS, -float("inf"))
    # From -inf, a block of -inf alone would give -inf - -inf, which is NaN.
    top = tl.maximum(tl.max(x, axis=0), LOWEST)
    total = tl.sum(tl.exp(x - top), axis=0)
    if part > 0:
        top_before = tl.load(tops_ptr + place - 1)
        total_before = tl.load(totals_ptr + place - 1)
        higher = tl.maximum(top, top_before)
        total = total * tl.exp(top - higher) + total_before * tl.exp(top_before - higher)
        top = higher
    tl.store(tops_ptr + place, top)
    tl.store(totals_ptr + place, total)


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, tops_ptr, totals_ptr, stride_x, stride_y,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """y = exp(x - top) / total with the last top and total of the row; program (i, k) has block k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    top = tl.load(tops_ptr + row * PARTS + PARTS - 1)
    total = tl.load(totals_ptr + row * PARTS + PARTS - 1)
    x = load(x_ptr + row * stride_x, cols, N_COLS, -float("inf"))
    store(y_ptr + row * stride_y, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), PART)
    parts = triton.cdiv(n_cols, block)
    tops = x.new_empty((n_rows, parts), dtype=torch.float32)
    totals = x.new_empty((n_rows, parts), dtype=torch.float32)
    on(statistics_kernel, x)[(n_rows, parts)](
        x, tops, totals, x.stride(0), N_COLS=n_cols, BLOCK=block, PARTS=parts
    )
    on(softmax_kernel, x)[(n_rows, parts)](
        x, out, tops, totals, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, PARTS=parts
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        terms += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(terms, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
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
