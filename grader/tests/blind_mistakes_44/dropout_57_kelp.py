# labs/lab4_production_slice/dropout.py | two mistakes | (1) Host and `choices`: the kernel gets `keep = 1.0 - p` and keeps where `numbers >= keep`; it should keep where the number is at least p. The share kept is p, wrong for every p except 0.5 and 1 (p = 0 gives zeros). (2) In `choices`, `tl.rand4x(seed + program, tl.arange(0, BLOCK))` adds the number of the program to the seed and begins the counters anew; it should be `tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK))`. The choice depends on BLOCK (the config), and the next seed gives the same choice one program further, for n over 2048, also with p = 0.5.
"""Dropout without a stored mask, by a tile of four elements for each counter."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def choices(seed, program, keep, BLOCK: tl.constexpr):
    """Return which of the 4 * BLOCK elements of a program are kept, as a block in their order."""
    a, b, c, d = tl.rand4x(seed + program, tl.arange(0, BLOCK))
    numbers = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(numbers, (4 * BLOCK,)) >= keep


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, keep, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where element i is kept, else 0.

    x and y are n contiguous elements of one dtype. A program has BLOCK counters of the generator, and four
    elements for each of them.
    """
    program = tl.program_id(axis=0)
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    # torch.compile passes keep and scale as fp64.
    kept = choices(seed, program, tl.cast(keep, tl.float32), BLOCK)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    keep = 1.0 - p
    scale = 1.0 / keep if keep > 0.0 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, keep, scale, seed)
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
