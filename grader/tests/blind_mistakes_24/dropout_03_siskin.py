# labs/lab4_production_slice/dropout.py | contract | dropout_kernel: tl.rand4x(seed + program, tl.arange(0, BLOCK)) gives each program a seed of its own instead of counters of its own, so beyond the first program the choice depends on BLOCK (not the same for every config), and program k of seed s repeats program k - 1 of seed s + 1. It should be tl.rand4x(seed, program * BLOCK + tl.arange(0, BLOCK)).
"""Dropout: no mask is stored, forward and backward pass draw the same numbers."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def keep_or_drop(x, random, p, scale):
    """x * scale where random is at least p, else 0; all in fp32."""
    scaled = x.to(tl.float32) * tl.cast(scale, tl.float32)
    return tl.where(random < tl.cast(p, tl.float32), 0.0, scaled)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """A program has a stream of random numbers, four for each counter, and as many elements."""
    WIDTH: tl.constexpr = 4 * BLOCK
    program = tl.program_id(axis=0).to(tl.int64)

    u0, u1, u2, u3 = tl.rand4x(seed + program, tl.arange(0, BLOCK))
    left = tl.join(u0, u1)
    right = tl.join(u2, u3)
    random = tl.reshape(tl.join(left, right), (WIDTH,))

    offsets = program * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    y = keep_or_drop(x, random, p, scale)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < n)


def factor(p: float) -> float:
    """What the kept elements are multiplied by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) or 0."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, factor(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy / (1 - p) or 0, by the same seed."""
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
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
