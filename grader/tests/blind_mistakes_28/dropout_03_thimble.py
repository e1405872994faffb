# labs/lab4_production_slice/dropout.py | contract | dropout_kernel: the four numbers of a counter go to elements BLOCK apart (`here + BLOCK`, `here + 2 * BLOCK`, `here + 3 * BLOCK`), so which elements are kept depends on BLOCK, that is on the config that the autotuner chose; share, factor and gradient are right under one config, but the README says that a seed gives the same choice for every config and on every machine, and that counter c decides elements 4 c to 4 c + 3; it shows with 0 < p < 1 and more than 512 elements when the two configs are compared; the numbers should be joined (tl.join, reshape) so that those of one counter lie next to each other
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """Store x * scale at these elements where their random number is at least p, else 0."""
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    r0, r1, r2, r3 = tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))
    here = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, BLOCK)
    keep_or_drop(x_ptr, y_ptr, here, n, r0, p, scale)
    keep_or_drop(x_ptr, y_ptr, here + BLOCK, n, r1, p, scale)
    keep_or_drop(x_ptr, y_ptr, here + 2 * BLOCK, n, r2, p, scale)
    keep_or_drop(x_ptr, y_ptr, here + 3 * BLOCK, n, r3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    scale = 0.0 if p == 1 else 1 / (1 - p)
    size = x.numel()
    grid = lambda meta: (triton.cdiv(size, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, size, p, scale, seed)
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
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
