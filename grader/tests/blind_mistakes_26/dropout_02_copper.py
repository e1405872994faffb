# labs/lab4_production_slice/dropout.py | corner | dropout_forward takes `n = x.shape[0]` for the number of elements, which is right for vectors only; of a tensor with more axes just the first shape[0] elements of memory are written and the rest of the result stays as allocated (y and dx of dropout, too; a tensor without axes raises). It should be x.numel()
"""Dropout without a stored mask: seed and counter decide, in both passes."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (1024, 8))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale where the random number is at least p, else 0: a counter for each row of four elements."""
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    numbers = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (BLOCK, 4))
    keep = numbers >= tl.cast(p, tl.float32)

    spots = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + spots, mask=spots < n, other=0.0).to(tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + spots, y.to(y_ptr.dtype.element_ty), mask=spots < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, fp32, fp16 or bf16, and 0 <= p <= 1. The result goes to `out` where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
        """Return y for x; p and seed are all that the gradient needs."""
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
