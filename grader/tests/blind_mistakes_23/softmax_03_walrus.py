# labs/lab4_production_slice/softmax.py | right | right
"""Softmax with a maximum and a sum for each lane, joined at the end; short rows share a program."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def fetch(ptrs, inside, other):
    """A tile in fp32."""
    return tl.load(ptrs, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptrs, inside, values):
    """Store a tile in the dtype that it points to."""
    tl.store(ptrs, values.to(ptrs.dtype.element_ty), mask=inside)


@triton.jit
def team_rows(TEAM: tl.constexpr):
    """The rows of this program, a column of int64."""
    first = tl.program_id(axis=0).to(tl.int64) * TEAM
    return (first + tl.arange(0, TEAM))[:, None]


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def lanes_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, TEAM: tl.constexpr
):
    """Program i has TEAM rows. No lane looks at another one before the row has ended."""
    rows = team_rows(TEAM)
    lanes = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    peak = tl.full((TEAM, BLOCK), LOWEST, tl.float32)
    mass = tl.zeros((TEAM, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = fetch(x_rows + cols, exists & (cols < N_COLS), -float("inf"))
        higher = tl.maximum(peak, x)
        mass = mass * tl.exp(peak - higher) + tl.exp(x - higher)
        peak = higher

    # Each lane counts in units of its own maximum: bring all to the maximum of the row.
    top = tl.max(peak, axis=1)[:, None]
    total = tl.sum(mass * tl.exp(peak - top), axis=1)[:, None]
    total = tl.where(exists, total, 1.0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        x = fetch(x_rows + cols, inside, -float("inf"))
        put(y_rows + cols, inside, tl.exp(x - top) / total)


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
    BLOCK: tl.constexpr,
    TEAM: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) for TEAM rows."""
    rows = team_rows(TEAM)
    lanes = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    products = tl.zeros((TEAM, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        products += fetch(y_rows + cols, inside, 0.0) * fetch(dy_rows + cols, inside, 0.0)
    inner = tl.sum(products, axis=1)[:, None]

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        y = fetch(y_rows + cols, inside, 0.0)
        dy = fetch(dy_rows + cols, inside, 0.0)
        put(dx_rows + cols, inside, y * (dy - inner))


def shape_of_program(n_cols: int):
    """Columns of a block, at most 4096, and rows of a program: about 1024 elements where rows are short."""
    block = min(block_of(n_cols), 4096)
    return block, max(1, 1024 // block)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block, team = shape_of_program(n_cols)
    grid = (triton.cdiv(n_rows, team),)
    on(lanes_kernel, x)[grid](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, TEAM=team
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block, team = shape_of_program(n_cols)
    grid = (triton.cdiv(n_rows, team),)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[grid](dy, y, out, n_rows, *strides, N_COLS=n_cols, BLOCK=block, TEAM=team)
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
        y = ctx.saved_tensors[0]
        dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
