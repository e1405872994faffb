# labs/lab4_production_slice/dropout.py | contract | Dropout saves y, and choose_kernel takes `y != 0` as the choice of the forward pass; README: "An element of x that is 0 may be kept, too: then its gradient is not 0". The gradient must draw the numbers of the seed again. Shows where x holds zeros (or numbers that underflow): their dx is 0 where they were kept.
"""Dropout, with the result of the forward pass as the record of what was kept."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
WIDTH = 2048


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where random number i is at least p, else 0."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    n0, n1, n2, n3 = tl.rand4x(seed, counters)
    random = tl.reshape(tl.join(tl.join(n0, n1), tl.join(n2, n3)), (4 * BLOCK,))
    i = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, tl.where(random >= p, x * scale, 0.0).to(y_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def choose_kernel(dy_ptr, y_ptr, dx_ptr, n, scale, WIDTH: tl.constexpr):
    """dx[i] = dy[i] * scale where y[i] was kept, else 0."""
    i = tl.program_id(axis=0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    y = tl.load(y_ptr + i, mask=i < n, other=0.0)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(dx_ptr + i, tl.where(y != 0, dy * scale, 0.0).to(dx_ptr.dtype.element_ty), mask=i < n)


def factor(p):
    """1 / (1 - p), but 0 where nothing is kept."""
    return 1.0 / (1.0 - p) if p < 1 else 0.0


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) or 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient, from the seed."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator."""
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_choose", mutates_args=())
def choose_op(dy: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    """The gradient, from y: no random numbers have to be drawn."""
    dx = torch.empty_like(dy)
    n = dy.numel()
    on(choose_kernel, dy)[(triton.cdiv(n, WIDTH),)](dy, y, dx, n, factor(p), WIDTH=WIDTH)
    return dx


class Dropout(torch.autograd.Function):
    """Forward by dropout_op, backward by choose_op."""

    @staticmethod
    def forward(ctx, x, p, seed):
        y = dropout_op(x, p, seed)
        ctx.save_for_backward(y)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return choose_op(dy.contiguous(), y, ctx.p), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training, else x."""
    return Dropout.apply(x, p, seed) if training else x
