# labs/lab4_production_slice/softmax.py | corner | In `part_kernel`, `load(x_ptr + row * stride_x, cols, N_COLS, float("-inf"))` masks with the end of the row, where it should be the end of the part, `tl.minimum(part * PART + PART, N_COLS)` as in `join_kernel`. Columns that the block of a part has beyond its end count in two sums, so the total is too large. Rows of more than 16384 columns whose parts are no power of two (16385, 20011, 24576, 40000; not 131072).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of a row that fits one block; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS, float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    store(y_ptr + row * stride_y, cols, N_COLS, e / tl.sum(e, axis=0))


@triton.jit
def part_kernel(
    x_ptr, top_ptr, total_ptr, stride_x, PARTS: tl.constexpr, PART: tl.constexpr,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Maximum and sum of part j of row i, PART columns; program (i, j). Both are stored as (n_rows, PARTS)."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * PART + tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS, float("-inf"))
    # A part may be -inf throughout.
    top = tl.maximum(tl.max(x, axis=0), LOWEST)
    tl.store(top_ptr + row * PARTS + part, top)
    tl.store(total_ptr + row * PARTS + part, tl.sum(tl.exp(x - top), axis=0))


@triton.jit
def join_kernel(
    x_ptr, top_ptr, total_ptr, y_ptr, stride_x, stride_y, PARTS: tl.constexpr, LANES: tl.constexpr,
    PART: tl.constexpr, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Join the parts of row i, and store part j of the result; program (i, j)."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    lanes = tl.arange(0, LANES)
    tops = load(top_ptr + row * PARTS, lanes, PARTS, LOWEST)
    totals = load(total_ptr + row * PARTS, lanes, PARTS)
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)
    first = part * PART
    end = tl.minimum(first + PART, N_COLS)
    cols = first + tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, end, float("-inf"))
    store(y_ptr + row * stride_y, cols, end, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. A long row is split into equal parts, one program for each.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    if n_cols <= WIDEST:
        on(row_kernel, x)[(n_rows,)](
            x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
        )
        return out
    parts = triton.cdiv(n_cols, WIDEST)
    part = triton.cdiv(n_cols, parts)
    block = block_of(part)
    tops, totals = torch.empty((2, n_rows, parts), device=x.device, dtype=torch.float32)
    on(part_kernel, x)[(n_rows, parts)](
        x, tops, totals, x.stride(0), PARTS=parts, PART=part, N_COLS=n_cols, BLOCK=block, num_warps=16
    )
    on(join_kernel, x)[(n_rows, parts)](
        x, tops, totals, out, x.stride(0), out.stride(0), PARTS=parts, LANES=triton.next_power_of_2(parts),
        PART=part, N_COLS=n_cols, BLOCK=block, num_warps=16,
    )  # fmt: skip
    return out


@triton.autotune(configs=WARPS[1:], key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


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
