# labs/lab4_production_slice/dropout.py | corner | The backward pass takes the choice from the result: gradient_kernel keeps dy `where y != 0` instead of drawing the numbers again, so an element of x that is 0 and was kept has dx = 0 instead of dy / (1 - p). Wrong only where x has zeros (as behind a ReLU), in dropout (dx); for x without zeros everything is right. Should be dropout_op(dy.contiguous(), p, seed) with the seed of the forward pass.
"""Dropout as an operator with its gradient."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


def factor(p):
    """What a kept element is multiplied by."""
    return 0.0 if p >= 1.0 else 1.0 / (1.0 - p)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Program k has counters k * BLOCK and on, and four elements for each.
    """
    program = tl.program_id(axis=0)
    r0, r1, r2, r3 = tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))
    random = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    """dx[i] = dy[i] * scale where y[i] was kept, else 0; program k has BLOCK elements."""
    elements = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = elements < n
    y = tl.load(y_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    dx = tl.where(y != 0.0, dy * tl.cast(scale, tl.float32), 0.0)
    tl.store(dx_ptr + elements, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()

    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_gradient", mutates_args=())
def gradient_op(dy: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    """The gradient for x, from dy and y, as an operator."""
    dx = torch.empty_like(dy)
    n = dy.numel()
    on(gradient_kernel, dy)[(triton.cdiv(n, 2048),)](dy, y, dx, n, factor(p), BLOCK=2048)
    return dx


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        y = dropout_op(x, p, seed)
        ctx.save_for_backward(y)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        (y,) = ctx.saved_tensors
        return gradient_op(dy.contiguous(), y, ctx.p), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
