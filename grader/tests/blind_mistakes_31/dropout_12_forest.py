# labs/lab4_production_slice/dropout.py | two mistakes | (1) the helper `draw` joins u, v, w and once more w, and leaves the fourth number of the counter out: elements 4c + 2 and 4c + 3 share one random number and are always kept or dropped together, for every p between 0 and 1 and more than a few elements; it should be tl.join(tl.join(u, w), tl.join(v, z)). (2) Dropout.backward hands dy to dropout_op as it is, without dy.contiguous(): the kernel takes it in the order of memory, so dx is wrong (or read past the end) where dy is transposed, expanded or has a step between columns; it should be dropout_op(dy.contiguous(), ...)
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def draw(seed, first, BLOCK: tl.constexpr):
    """Return the numbers of BLOCK counters from `first` on, side by side for each counter."""
    u, v, w, z = tl.rand4x(seed, first + tl.arange(0, BLOCK))
    fours = tl.join(tl.join(u, w), tl.join(v, w))
    return tl.reshape(fours, (4 * BLOCK,))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    random = draw(seed, program * BLOCK, BLOCK)
    start = program.to(tl.int64) * 4 * BLOCK
    offsets = start + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    x *= tl.cast(scale, tl.float32)
    x = tl.where(random < tl.cast(p, tl.float32), 0.0, x)
    tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=offsets < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    if out is None:
        out = torch.empty_like(x)
    size = x.numel()
    keep = 1.0 - p
    scale = 1.0 / keep if keep > 0.0 else 0.0
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(size, 4 * meta["BLOCK"]),)]
    launch(x, out, size, p, scale, seed)
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
        ctx.probability = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy, ctx.probability, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
