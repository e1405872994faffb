# labs/lab4_production_slice/dropout.py | contract | dropout_kernel: for 16-bit elements (PER = 8) a lane's eight neighbours take the counters `first` and `first + BLOCK`, so which counter decides an element of fp16 or bf16 depends on BLOCK, and the choice differs from that of fp32 for the same seed. Share, factor, independence and gradient are right; broken is "A seed gives the same choice in every call, on every machine, for every dtype and config" (counter c decides elements 4c to 4c + 3). fp32 is right. It should draw counters 2c and 2c + 1 for the eight elements, in the order of fp32, or four elements for each counter in every dtype.
"""Dropout without a stored mask: 16 bytes for each lane, and the numbers are drawn again for the gradient."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))]


@triton.jit
def draw(seed, counters, BLOCK: tl.constexpr):
    """Return the four numbers of each counter as a row of a tile (BLOCK, 4), uniform in [0, 1)."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, PER: tl.constexpr, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype. A program has BLOCK lanes, and PER neighbours in each
    lane: 4 of fp32, 8 of fp16 or bf16.
    """
    program = tl.program_id(axis=0)
    first = program * (PER // 4 * BLOCK) + tl.arange(0, BLOCK)
    numbers = draw(seed, first, BLOCK)
    if PER == 8:
        numbers = tl.join(numbers, draw(seed, first + BLOCK, BLOCK))
    numbers = tl.reshape(numbers, (PER * BLOCK,))

    elements = program.to(tl.int64) * (PER * BLOCK) + tl.arange(0, PER * BLOCK)
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(numbers >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    per = 16 // x.element_size()
    scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, per * meta["BLOCK"]),)](
        x, out, n, p, scale, seed, PER=per
    )
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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
