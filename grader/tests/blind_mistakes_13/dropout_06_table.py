# labs/lab4_production_slice/dropout.py | right | Unusual: elements and random numbers are 2-D tiles of (BLOCK, 4), one row for each counter, nothing is reshaped to one axis, and both the scale and the grid are computed in a helper.
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
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    Element 4 c + k is row c, column k of a table, and row c of the table has the four numbers of counter c.
    """
    program = tl.program_id(axis=0)
    c = program * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, 4)

    r0, r1, r2, r3 = tl.rand4x(seed, c)
    random = tl.reshape(tl.join(tl.join(r0, r2), tl.join(r1, r3)), (BLOCK, 4))

    element = c.to(tl.int64)[:, None] * 4 + k[None, :]
    inside = element < n
    value = tl.load(x_ptr + element, mask=inside, other=0.0).to(tl.float32)
    value *= tl.cast(scale, tl.float32)
    value = tl.where(random >= tl.cast(p, tl.float32), value, 0.0)
    tl.store(y_ptr + element, value.to(y_ptr.dtype.element_ty), mask=inside)


def _launch(source, target, p, seed):
    """Launch the kernel for all elements of source."""
    n = source.numel()
    survivors = 1.0 - p
    scale = 1.0 / survivors if survivors > 0 else 0.0
    launch = on(dropout_kernel, source)[lambda meta: (triton.cdiv(triton.cdiv(n, 4), meta["BLOCK"]),)]
    launch(source, target, n, p, scale, seed)
    return target


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    return _launch(x, torch.empty_like(x) if out is None else out, p, seed)


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    return _launch(dy, torch.empty_like(dy) if out is None else out, p, seed)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        """Return y for x."""
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
