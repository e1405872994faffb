# labs/lab4_production_slice/dropout.py | right | The block of x is reshaped and taken apart by `tl.split` into the four elements of each counter, each is compared with its number of `tl.rand4x`, and the four are put together by `tl.join`; programs go on over chunks in a loop (at most 16384 programs). The counters count over the whole tensor, so the choice does not depend on BLOCK or the grid.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024) for warps in (4, 8)]
PROGRAMS = 16384  # at most: a program goes on to the chunk that is so many further along


@triton.jit
def kept(x, random, p, scale):
    """x times scale where the number is at least p, else 0."""
    return tl.where(random >= p, x * scale, 0.0)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Chunk k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter. The elements are taken
    apart into four blocks, one for each number of a counter, and put together again.
    """
    # torch.compile passes both as fp64.
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    chunks = (n - 1) // (4 * BLOCK) + 1  # n + 4 * BLOCK could leave the range of int32
    for chunk in range(tl.program_id(axis=0), chunks, tl.num_programs(axis=0)):
        counters = tl.cast(chunk, tl.int32) * BLOCK + tl.arange(0, BLOCK)
        elements = tl.cast(chunk, tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK, 2, 2)))
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
        r0, r1, r2, r3 = tl.rand4x(seed, counters)
        even = tl.join(kept(x0, r0, p, scale), kept(x2, r2, p, scale))
        odd = tl.join(kept(x1, r1, p, scale), kept(x3, r3, p, scale))
        y = tl.reshape(tl.join(even, odd), (4 * BLOCK,))
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    launch = on(dropout_kernel, x)[lambda meta: (min(triton.cdiv(n, 4 * meta["BLOCK"]), PROGRAMS),)]
    launch(x, out, n, p, scale, seed)
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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
