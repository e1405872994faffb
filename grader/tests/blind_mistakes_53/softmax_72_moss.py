# labs/lab4_production_slice/softmax.py | two mistakes | (1) Forward (corner): `in_bits` multiplies by `LOG2E` before the maximum is subtracted (`load(...) * LOG2E`, then `tl.exp2(bits - higher)`); it should be `exp2((x - top) * LOG2E)`. Digits are lost in fp32 rows far from 0 (e.g. values near 16384); rows near 0 are right. (2) Backward (corner): `row_starts` in `return ptr + (rows * stride).to(tl.int64)` converts after the int32 multiplication; it should be `rows.to(tl.int64) * stride`. `fused_softmax_backward` is wrong or out of bounds where a row starts beyond 2^31 elements in dy, y or out (with a stride that fits int32).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def in_bits(row_ptr, cols, n_cols):
    """Return columns `cols` of a row in units of log(2), and -inf where the row has no such column."""
    return load(row_ptr, cols, n_cols, other=float("-inf")) * LOG2E


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    The powers are powers of two, for which the GPU has an instruction.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = tl.cast(LOWEST, tl.float32)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        bits = in_bits(x_row, start + lanes, N_COLS)
        higher = tl.maximum(top, tl.max(bits, axis=0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(bits - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        store(y_row, cols, N_COLS, tl.exp2(in_bits(x_row, cols, N_COLS) - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.jit
def row_starts(ptr, rows, stride):
    """Return where the rows begin; a matrix may have more than 2^31 elements."""
    return ptr + (rows * stride).to(tl.int64)


@triton.jit
def load_tile(starts, cols, inside):
    """Return a tile in fp32, 0 where it has no element."""
    return tl.load(starts + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i computes ROWS rows, BLOCK columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    dy_rows = row_starts(dy_ptr, rows, stride_dy)
    y_rows = row_starts(y_ptr, rows, stride_y)
    dx_rows = row_starts(dx_ptr, rows, stride_dx)
    lanes = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        products += tl.sum(load_tile(y_rows, cols, inside) * load_tile(dy_rows, cols, inside), axis=1)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        dx = load_tile(y_rows, cols, inside) * (load_tile(dy_rows, cols, inside) - products[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype) if out is None else out
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)
    rows = max(1, min(8, 1024 // block))  # short rows share a program
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, rows),)]
    launch(
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, BLOCK=block
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
