# labs/lab4_production_slice/softmax.py | two mistakes | (1) In `fused_softmax_forward`, `programs = max(1, n_rows // rows)` should be `triton.cdiv(n_rows, rows)`: where a program has several rows (up to 1024 columns) and n_rows is more than `rows` and no multiple of it, the last rows are not written (7 x 1001, 37 x 100). (2) In `softmax_kernel`, `rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]` is int32 when it meets a stride; it needs `.to(tl.int64)`. Offsets beyond 2^31 wrap, for x and y with rows far apart (3 x 257 far).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
WIDE = 8192  # columns of a tile at most
TILE = 2048  # numbers of a tile of short rows


def tile_of(n_cols: int):
    """Rows and columns of a tile, and the warps for it."""
    cols = min(triton.next_power_of_2(n_cols), WIDE)
    rows = max(1, TILE // cols)
    return rows, cols, max(4, cols // 512)


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, stride_x, stride_y, n_rows, N_COLS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)) for ROWS rows, COLS columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    top = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        terms = tl.exp2((x - higher) * LOG2E)
        total = total * tl.exp2((top - higher) * LOG2E) + tl.sum(terms, axis=1, keep_dims=True)
        top = higher
    # Rows past the last have no terms.
    factor = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for start in range(0, N_COLS, COLS):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=float("-inf")).to(tl.float32)
        y = tl.exp2((x - top) * LOG2E) * factor
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. A program has several rows where they are short.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, cols, warps = tile_of(n_cols)
    programs = max(1, n_rows // rows)
    on(softmax_kernel, x)[(programs,)](
        x, out, x.stride(0), out.stride(0), n_rows, N_COLS=n_cols, ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, COLS: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, COLS)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = 0.0
    for start in range(0, N_COLS, COLS):
        cols = start + lanes
        y = tl.load(y_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        products += tl.sum(y * dy, axis=0)
    for start in range(0, N_COLS, COLS):
        cols = start + lanes
        y = tl.load(y_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        dx = y * (dy - products)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < N_COLS)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    cols, warps = tile_of(n_cols)[1:]
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, COLS=cols, num_warps=warps
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
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
