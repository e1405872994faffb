# labs/lab4_production_slice/dropout.py | contract | In dropout_kernel the four blocks of random numbers of a program decide four blocks of BLOCK elements that lie one behind the other (`at`, `at + BLOCK`, `at + 2 * BLOCK`, `at + 3 * BLOCK`), so which number an element gets depends on BLOCK, which the autotuner picks by time. This breaks "A seed gives the same choice in every call, on every machine, for every dtype and config": with BLOCK 512 and 1024 (and so for another dtype, size or GPU, for which another config is chosen) the same seed drops other elements. Within one config all numbers are right. Counter c should decide elements 4 c to 4 c + 3, by tl.join and a reshape.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (1024, 8))]


@triton.jit
def thin(x_ptr, y_ptr, at, n, random, p, scale):
    """y = x * scale at the elements `at` whose random number is at least p, and 0 at the others of them."""
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random < p, 0.0, x * scale)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has BLOCK
    counters of the generator, none of which another program has, and uses all four numbers of each.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    base = program.to(tl.int64) * (4 * BLOCK)
    at = base + lanes
    thin(x_ptr, y_ptr, at, n, first, p, scale)
    thin(x_ptr, y_ptr, at + BLOCK, n, second, p, scale)
    thin(x_ptr, y_ptr, at + 2 * BLOCK, n, third, p, scale)
    thin(x_ptr, y_ptr, at + 3 * BLOCK, n, fourth, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
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
