# labs/lab4_production_slice/dropout.py | race | dropout_kernel, random (fp32 scratch tensor): program k > 0 loads in line 39 the numbers of its block, which program k - 1 stores in line 37 of the same launch; for n > 4 * BLOCK (1024 or 2048 by the config); values right one program after the other
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512)]


@triton.jit
def draw(seed, first, BLOCK: tl.constexpr):
    """Random numbers of BLOCK counters from `first` on, four for each, those of a counter side by side."""
    a, b, c, d = tl.rand4x(seed, (first + tl.arange(0, BLOCK)).to(tl.int32))
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, random_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter. It draws the numbers of
    the next block while it waits for x: random, (n,) fp32, keeps them.
    """
    program = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, 4 * BLOCK).to(tl.int64)
    elements = program * (4 * BLOCK) + lanes
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    if program == 0:
        # Nobody has drawn the numbers of the first block.
        tl.store(random_ptr + lanes, draw(seed, 0, BLOCK), mask=lanes < n)
    following = elements + 4 * BLOCK
    tl.store(random_ptr + following, draw(seed, (program + 1) * BLOCK, BLOCK), mask=following < n)
    tl.debug_barrier()
    random = tl.load(random_ptr + elements, mask=elements < n, other=0.0)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    random = x.new_empty((n,), dtype=torch.float32)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, random, n, p, scale, seed)
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
