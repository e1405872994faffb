# labs/lab4_production_slice/dropout.py | contract | In `dropout_forward`, `width = PACK_BYTES // x.element_size()` together with `if WIDTH == 8:` and `others = draw(seed, pack + packs, BLOCK)` in `dropout_kernel` gives 16-bit elements other counters than fp32 ones: there counter c decides four of elements 8c to 8c + 7, and counter c + packs the others. So one seed gives another choice in fp16 and bf16 than in fp32, against "A seed gives the same choice in every call, on every machine, for every dtype and config" and "Counter c decides elements 4 c to 4 c + 3"; share, factor and the replay in the backward pass are right. It should be counter i // 4 for element i in all dtypes.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024)]
PACK_BYTES = 16  # what a thread loads and stores at once


@triton.jit
def draw(seed, counters, BLOCK: tl.constexpr):
    """Return the four random numbers of each counter, (BLOCK, 4)."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, packs, p, scale, seed, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype, in so many packs of WIDTH elements, the last of which may
    be shorter. Program k has BLOCK packs, from k * BLOCK on.
    """
    pack = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    random = draw(seed, pack, BLOCK)
    if WIDTH == 8:
        # A counter has four numbers. The other four come from the counters behind those of all packs.
        others = draw(seed, pack + packs, BLOCK)
        random = tl.reshape(tl.join(random, others), (BLOCK, WIDTH))
    element = pack[:, None].to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = element < n
    x = tl.load(x_ptr + element, mask=inside, other=0.0).to(tl.float32)
    # torch.compile passes p and scale as fp64.
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + element, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    width = PACK_BYTES // x.element_size()
    packs = triton.cdiv(n, width)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(packs, meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, packs, p, scale, seed, WIDTH=width)
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
