# labs/lab4_production_slice/dropout.py | two mistakes | both in dropout_kernel, so in both passes. First: tl.rand4x(seed + program, tl.arange(0, BLOCK)) puts the number of the program into the seed instead of into the counters, so seed s + 1 gives the choice of seed s moved by one program, and the choice depends on BLOCK; shows with two neighbouring seeds or with another config, for n above 4 * BLOCK. It should be tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK)). Second: keep = random < p keeps with probability p instead of 1 - p; shows for every p but 0.5 and 1 (p = 0 gives zeros). It should be random >= p
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
    """y[i] = x[i] * scale or 0, as the random numbers of `seed` decide.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has BLOCK
    counters of the generator, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    # The four numbers of a counter belong to four neighbours.
    first, second, third, fourth = tl.rand4x(seed + program, tl.arange(0, BLOCK))
    pairs = tl.join(tl.join(first, third), tl.join(second, fourth))
    random = tl.reshape(pairs, (4 * BLOCK,))

    places = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    exists = places < n
    x = tl.load(x_ptr + places, mask=exists, other=0.0).to(tl.float32)
    keep = random < tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + places, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
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
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
