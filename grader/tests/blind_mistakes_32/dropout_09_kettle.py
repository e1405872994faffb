# labs/lab4_production_slice/dropout.py | error | in dropout_kernel the joined numbers keep the shape (BLOCK, 2, 2): the reshape to one axis is missing, so `tl.where(keep, x * scale, 0.0)` cannot broadcast them with the (4 * BLOCK,) elements and the kernel does not compile. Shows in every case. It should be `random = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))`.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

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
    # Four numbers of a counter side by side: they belong to four neighbours.
    random = tl.join(tl.join(r0, r1), tl.join(r2, r3))
    keep = random >= tl.cast(p, tl.float32)

    where = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = where < n
    x = tl.load(x_ptr + where, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + where, y.to(y_ptr.dtype.element_ty), mask=mask)


def factor_of(p):
    """Return what the kept elements are multiplied by; with p = 1 there are none."""
    if p >= 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, factor_of(p), seed)
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
