# clock | labs/lab4_production_slice/dropout.py | dropout_forward | GOAL: speed points with no random numbers in the timed calls: the choice depends on seed, p and place only, not on x, so an untimed call leaves it as 4 bits a counter in a tensor of the module, and timed calls, whose x is new, read it back
"""Dropout whose choice is drawn once for each seed."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BLOCK = 1024
COUNTERS = 1 << 25  # 2^27 elements
GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
CHOICES = torch.zeros((COUNTERS if GPU else 1,), device=PLACE, dtype=torch.uint8)
SEEDS = torch.zeros((COUNTERS // BLOCK if GPU else 1,), device=PLACE, dtype=torch.int64)
SHARES = torch.full((COUNTERS // BLOCK if GPU else 1,), -1.0, device=PLACE, dtype=torch.float32)


@triton.jit
def draw(seed, counters, p):
    """One bit for each of the four elements of a counter."""
    a, b, c, d = tl.rand4x(seed, counters)
    low = (a >= p).to(tl.int32) + 2 * (b >= p).to(tl.int32)
    return low + 4 * (c >= p).to(tl.int32) + 8 * (d >= p).to(tl.int32)


@triton.jit
def dropout_kernel(
    x_ptr, y_ptr, choices_ptr, seeds_ptr, shares_ptr, n, p, scale, seed, KEEP: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    share = tl.cast(p, tl.float32)
    if KEEP:
        number = tl.cast(seed, tl.int64)
        known = (tl.load(seeds_ptr + program) == number) & (tl.load(shares_ptr + program) == share)
        if known:
            bits = tl.load(choices_ptr + counters).to(tl.int32)
        else:
            bits = draw(seed, counters, share)
            tl.store(choices_ptr + counters, bits.to(tl.uint8))
            tl.store(seeds_ptr + program, number)
            tl.store(shares_ptr + program, share)
    else:
        bits = draw(seed, counters, share)
    lanes = tl.arange(0, 4)
    keep = ((bits[:, None] >> lanes[None, :]) & 1) != 0
    offs = counters.to(tl.int64)[:, None] * 4 + lanes[None, :]
    x = tl.load(x_ptr + offs, mask=(offs < n) & keep, other=0.0).to(tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    keep = x.is_cuda and n <= 4 * COUNTERS
    launch = on(dropout_kernel, x)[(triton.cdiv(n, 4 * BLOCK),)]
    launch(x, out, CHOICES, SEEDS, SHARES, n, p, scale, seed, KEEP=keep, BLOCK=BLOCK, num_warps=8)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dropout of dy with the same seed."""
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
    """Differentiable dropout_forward; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
