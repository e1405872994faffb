# labs/lab4_production_slice/softmax.py | corner | `chunk_kernel` stores its numbers at `row * CHUNKS + chunk`, and `join_kernel` loads them at `tops_ptr + row * LANES` and `totals_ptr + row * LANES`, where LANES is CHUNKS rounded up to a power of two; both should be `row * CHUNKS`. In `fused_softmax_forward` rows of more than 16384 columns whose number of chunks is no power of two (40000 columns: 3) are wrong from row 1 on; 16385, 20011, 24576 and 131072 columns are right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(difference):
    """exp(difference), as a power of two."""
    return tl.exp2(difference * LOG2_E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of rows that fit one block; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS, float("-inf"))
    shares = power(x - tl.max(x, axis=0))
    store(y_ptr + row * stride_y, cols, N_COLS, shares / tl.sum(shares, axis=0))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def chunk_kernel(
    x_ptr,
    tops_ptr,
    totals_ptr,
    stride_x,
    N_COLS: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Maximum of a chunk of BLOCK columns, and the sum of exp(x - maximum) in it.

    A row has CHUNKS programs, one for each chunk. The two numbers are stored as (n_rows, CHUNKS) fp32.
    """
    program = tl.program_id(axis=0).to(tl.int64)
    row = program // CHUNKS
    chunk = program % CHUNKS
    x = load(x_ptr + row * stride_x, chunk * BLOCK + tl.arange(0, BLOCK), N_COLS, float("-inf"))
    top = tl.maximum(tl.max(x, axis=0), LOWEST)  # a chunk may be -inf alone
    tl.store(tops_ptr + row * CHUNKS + chunk, top)
    tl.store(totals_ptr + row * CHUNKS + chunk, tl.sum(power(x - top), axis=0))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def join_kernel(
    x_ptr,
    tops_ptr,
    totals_ptr,
    y_ptr,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    CHUNKS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Join the chunks of a row, and store one chunk of its softmax; LANES is a power of two."""
    program = tl.program_id(axis=0).to(tl.int64)
    row = program // CHUNKS
    chunk = program % CHUNKS
    lanes = tl.arange(0, LANES)
    tops = load(tops_ptr + row * LANES, lanes, CHUNKS, LOWEST)
    totals = load(totals_ptr + row * LANES, lanes, CHUNKS)
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * power(tops - top), axis=0)

    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = load(x_ptr + row * stride_x, cols, N_COLS, float("-inf"))
    store(y_ptr + row * stride_y, cols, N_COLS, power(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    if n_cols <= WIDEST:
        launch = on(row_kernel, x)[(n_rows,)]
        launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
        return out
    # Long rows: all chunks of all rows at once, and then once more to normalise them.
    chunks = triton.cdiv(n_cols, block)
    tops, totals = torch.empty((2, n_rows, chunks), device=x.device, dtype=torch.float32)
    grid = (n_rows * chunks,)
    sizes = {"N_COLS": n_cols, "CHUNKS": chunks, "BLOCK": block}
    on(chunk_kernel, x)[grid](x, tops, totals, x.stride(0), **sizes)
    lanes = triton.next_power_of_2(chunks)
    on(join_kernel, x)[grid](x, tops, totals, out, x.stride(0), out.stride(0), LANES=lanes, **sizes)
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
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
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
