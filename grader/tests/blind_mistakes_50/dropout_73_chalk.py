# labs/lab4_production_slice/dropout.py | corner | In `dropout_forward`, `threshold = round(p * 256)` (with the bytes of `random_bytes`): a chance in steps of 1/256, where the number should be compared with p itself in fp32 (or have many more bits). The share of kept elements is not 1 - p where 256 * p is not whole and there are many elements: p = 0.01 drops 3/256 = 0.0117, p = 0.3 drops 0.30078; p = 0, 0.5, 0.75 and 1 are right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PARTS = tl.constexpr(16)  # elements that a counter of the generator decides: four numbers of four bytes
CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((128, 4), (256, 4), (256, 8))
]


@triton.jit
def random_bytes(seed, counters, BLOCK: tl.constexpr):
    """PARTS numbers from 0 to 255 for each counter, those of one counter next to each other."""
    a, b, c, d = tl.randint4x(seed, counters)
    words = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK * 4,))
    shifts = (8 * tl.arange(0, 4)).to(tl.uint32)
    numbers = (words.to(tl.uint32, bitcast=True)[:, None] >> shifts[None, :]) & 0xFF
    return tl.reshape(numbers, (BLOCK * PARTS,)).to(tl.int32)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, threshold, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random byte of `seed` is at least threshold, else 0.

    x and y are n contiguous elements of one dtype. Program k has BLOCK counters of the generator, from
    k * BLOCK on, and PARTS elements for each counter.
    """
    program = tl.program_id(axis=0)
    number = random_bytes(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    elements = program.to(tl.int64) * (BLOCK * PARTS) + tl.arange(0, BLOCK * PARTS)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(number >= threshold, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    threshold = round(p * 256)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    grid = lambda meta: (triton.cdiv(n, 16 * meta["BLOCK"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, threshold, scale, seed)
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
