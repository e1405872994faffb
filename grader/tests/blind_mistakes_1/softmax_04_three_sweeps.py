# lab4_production_slice/softmax.py | error | softmax_kernel and gradient_kernel start their loop-carried sums with the integer 0 (`total = 0`, `dot = 0`), and the loop makes them fp32: Triton refuses to compile ("Loop-carried variable total has initial type int32 but is re-assigned to fp32"); shows only in compilation (codegen tier or GPU), the interpreter computes the right numbers | fused_softmax_forward / fused_softmax_backward give no result on a GPU ("COMPILE_ERROR: Triton could not compile the kernel"), for all inputs
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Three sweeps over the row: maximum, sum, result."""
    i = tl.program_id(0).to(tl.int64)
    src = x_ptr + i * stride_x
    dst = y_ptr + i * stride_y
    neg_inf = float("-inf")

    best = tl.full((BLOCK,), neg_inf, tl.float32)
    for off in range(0, N_COLS, BLOCK):
        best = tl.maximum(best, load(src, off + tl.arange(0, BLOCK), N_COLS, neg_inf))
    top = tl.max(best, axis=0)

    total = 0
    for off in range(0, N_COLS, BLOCK):
        x = load(src, off + tl.arange(0, BLOCK), N_COLS, neg_inf)
        total += tl.sum(tl.exp(x - top), axis=0)

    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = load(src, cols, N_COLS, neg_inf)
        store(dst, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    assert x.dim() == 2 and x.stride(1) == 1 or x.shape[1] == 1, "columns must be contiguous"
    if out is None:
        out = torch.empty_like(x)
    softmax = on(softmax_kernel, x)
    softmax[(x.size(0),)](
        x, out, x.stride(0), out.stride(0), N_COLS=x.size(1), BLOCK=block_of(x.size(1))
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    i = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + i * stride_dy
    y_row = y_ptr + i * stride_y
    dx_row = dx_ptr + i * stride_dx
    dot = 0
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        dot += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for off in range(0, N_COLS, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - dot)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = torch.empty_like(dy)
    gradient = on(gradient_kernel, dy)
    gradient[(dy.size(0),)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=dy.size(1), BLOCK=block_of(dy.size(1))
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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (result,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), result)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
