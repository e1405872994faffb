# labs/lab4_production_slice/softmax.py | wrong everywhere | the gradient is that of the sigmoid: `dx_tile_kernel` computes dy * y * (1 - y), only the diagonal of the Jacobian; it must be y * (dy - sum of y * dy over the row). fused_softmax_backward and fused_softmax are wrong for rows of more than one column (in fp16 and bf16 very long rows may hide it in the rounding of small numbers); forward is right
"""Softmax: forward row by row, backward element by element on a 2-D grid."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

NEG = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def fold(m, s, x):
    """Take the block x into the running maximum m and the running sum s."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    return m_new, s * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64)
    x_ptr += i * stride_x
    y_ptr += i * stride_y
    m = tl.max(tl.full((1,), NEG, tl.float32), axis=0)
    s = tl.sum(tl.zeros((1,), tl.float32), axis=0)
    for lo in range(0, N_COLS, BLOCK):
        m, s = fold(m, s, load(x_ptr, lo + tl.arange(0, BLOCK), N_COLS, -float("inf")))
    # from the end to the start: the last block is still in the cache
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    for k in range(0, BLOCKS):
        cols = (BLOCKS - 1 - k) * BLOCK + tl.arange(0, BLOCK)
        e = tl.exp(load(x_ptr, cols, N_COLS, -float("inf")) - m)
        store(y_ptr, cols, N_COLS, e / s)


@triton.jit
def dx_tile_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr):
    """The derivative of softmax at y is y * (1 - y); times dy by the chain rule. No program needs the others."""
    i = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * WIDTH + tl.arange(0, WIDTH)
    y = load(y_ptr + i * stride_y, cols, n_cols)
    dy = load(dy_ptr + i * stride_dy, cols, n_cols)
    store(dx_ptr + i * stride_dx, cols, n_cols, dy * y * (1.0 - y))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = min(1024, triton.next_power_of_2(n_cols))
    on(dx_tile_kernel, dy)[(n_rows, triton.cdiv(n_cols, width))](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), WIDTH=width
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable softmax."""
    return FusedSoftmax.apply(x)
