# labs/lab4_production_slice/dropout.py | honest | Right: no tl.join; a counter decides four neighbours, stored by four masked strided stores, the same numbers in backward.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def chosen(values, number, p, scale):
    """Values that stay, scaled in fp32; zeros elsewhere."""
    return tl.where(number >= p, values.to(tl.float32) * scale, 0.0)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """Four neighbours a counter, each with a number of its own; the last of them has the first number."""
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    counter = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    base = counter.to(tl.int64) * 4
    r0, r1, r2, r3 = tl.rand4x(seed, counter)
    out_type = y_ptr.dtype.element_ty
    x = tl.load(x_ptr + base + 3, mask=base + 3 < n, other=0.0)
    tl.store(y_ptr + base + 3, chosen(x, r0, p, scale).to(out_type), mask=base + 3 < n)
    x = tl.load(x_ptr + base + 2, mask=base + 2 < n, other=0.0)
    tl.store(y_ptr + base + 2, chosen(x, r1, p, scale).to(out_type), mask=base + 2 < n)
    x = tl.load(x_ptr + base + 1, mask=base + 1 < n, other=0.0)
    tl.store(y_ptr + base + 1, chosen(x, r2, p, scale).to(out_type), mask=base + 1 < n)
    x = tl.load(x_ptr + base, mask=base < n, other=0.0)
    tl.store(y_ptr + base, chosen(x, r3, p, scale).to(out_type), mask=base < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    if n > 0:
        grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)  # noqa: E731
        on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
