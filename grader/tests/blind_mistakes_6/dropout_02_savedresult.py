# labs/lab4_production_slice/dropout.py | corner | The backward pass takes y != 0 for the choice: an element with x = 0 that was kept has y = 0, so its gradient becomes 0, and must be dy / (1 - p). Shown by inputs with exact zeros (e.g. after a ReLU), or whose kept values round to 0. It must draw the numbers of the seed again.
"""Dropout without a stored mask."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    random = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape(4 * BLOCK)
    offs = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    keep = random >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
    if n > 0:
        on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    """dx = dy * scale for the kept elements."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    dy = tl.load(dy_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    dx = tl.where(y != 0.0, dy * tl.cast(scale, tl.float32), 0.0)
    tl.store(dx_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout_gradient", mutates_args=())
def gradient_op(dy: torch.Tensor, y: torch.Tensor, p: float) -> torch.Tensor:
    """dx from dy and the result of the forward pass, for torch.compile."""
    dx = torch.empty_like(dy)
    n = dy.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    if n > 0:
        on(gradient_kernel, dy)[grid](dy, y, dx, n, scale)
    return dx


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.p = p
        y = dropout_op(x, p, seed)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        (y,) = ctx.saved_tensors
        return gradient_op(dy.contiguous(), y, ctx.p), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
