# labs/lab4_production_slice/dropout.py | corner | the backward pass takes the choice from the saved result (`y != 0` in `gradient_kernel`) instead of drawing it again: an element of x that is 0 and was kept gets gradient 0, it must get dy / (1 - p). Shows only where x has zeros, as behind a ReLU
"""Dropout whose backward pass needs no generator: what was kept can be seen in the result."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
WIDTH = 4096


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    r0, r1, r2, r3 = tl.rand4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    random = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape(4 * BLOCK)
    i = pid.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n, scale, WIDTH: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    kept = tl.load(y_ptr + i, mask=i < n, other=0.0) != 0
    dx = tl.where(kept, dy * tl.cast(scale, tl.float32), 0.0)
    tl.store(dx_ptr + i, dx.to(dx_ptr.dtype.element_ty), mask=i < n)


def scale_of(p):
    return 0.0 if p == 1 else 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_gradient", mutates_args=())
def gradient_op(dy: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    dx = torch.empty_like(dy)
    n = dy.numel()
    on(gradient_kernel, dy)[(triton.cdiv(n, WIDTH),)](dy, y, dx, n, scale_of(p), WIDTH=WIDTH, num_warps=4)
    return dx


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        y = dropout_op(x, p, seed)
        ctx.save_for_backward(y)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return gradient_op(dy.contiguous(), y, ctx.p), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    return Dropout.apply(x, p, seed) if training else x
