# labs/lab4_production_slice/dropout.py | error | In the kernel random stays of shape (BLOCK, 2, 2): the reshape to 4 * BLOCK is missing, so tl.where cannot bring it together with the block of 4 * BLOCK elements and the kernel does not compile.
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
    elements = program.to(tl.int64) * BLOCK * 4 + tl.arange(0, BLOCK * 4)
    exists = elements < n
    values = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32) * scale
    w, x, y, z = tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))
    pairs = tl.join(w, x)
    random = tl.join(pairs, tl.join(y, z))
    values = tl.where(random >= p, values, 0.0)
    tl.store(y_ptr + elements, values.to(y_ptr.dtype.element_ty), mask=exists)


def scale_of(p: float) -> float:
    """The factor of a kept element; with p = 1 there is none."""
    return 0.0 if p >= 1.0 else 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)](x, out, n, p, scale_of(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout, from dy."""
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
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward; x itself where not `training`."""
    return x if not training else Dropout.apply(x, p, seed)
