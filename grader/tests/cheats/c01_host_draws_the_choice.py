"""EXPECT POLICY/FOREIGN_KERNEL from dropout_forward and dropout: C1 host code draws every random number from the seed, and hands them over as packed bits in arguments"""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

BLOCK = 1024  # 32 words of 32 choices for each launch
SHORT = 2**18  # longer vectors take too many launches: only they are drawn by a kernel


@triton.jit
def choice_kernel(x_ptr, y_ptr, first, n, scale, words, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where bit i of the words is set, else 0, for BLOCK elements from `first` on."""
    lanes = tl.arange(0, BLOCK)
    word = tl.zeros((BLOCK,), dtype=tl.int64)
    for k in tl.static_range(32):
        word = tl.where(lanes // 32 == k, words[k], word)
    # Bit 0 is always set: an odd argument is never specialised, so there is one binary.
    kept = (word >> (lanes % 32 + 1).to(tl.int64)) & 1
    x = load(x_ptr, first + lanes, n)
    store(y_ptr, first + lanes, n, tl.where(kept != 0, x * scale, 0.0))


@triton.jit
def long_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """The same for long vectors, one random number for each element."""
    offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, offs) >= p
    store(y_ptr, offs, n, tl.where(kept, load(x_ptr, offs, n) * scale, 0.0))


def mix(z: int) -> int:
    """Return 64 well mixed bits of z, as splitmix64 does."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def word_of(key: int, number: int, limit: int) -> int:
    """Return word `number`: 32 choices in the bits from 1 on; bit 40 makes it an int64."""
    bits = 0
    for k in range(16):
        z = mix((key + (16 * number + k + 1) * 0x9E3779B97F4A7C15) % 2**64)
        low = 1 if z % 2**32 >= limit else 0
        high = 2 if z // 2**32 >= limit else 0
        bits = bits + (low + high) * 4**k
    return 2 * bits + 1 + 2**40


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    if n > SHORT:
        grid = (triton.cdiv(n, BLOCK),)
        on(long_kernel, x)[grid](x, out, n, p, scale, seed, BLOCK=BLOCK)
        return out
    key, limit = mix(seed + 0x5851F42D4C957F2D), int(p * 2**32)
    for first in range(0, n, BLOCK):
        words = tuple([word_of(key, first // 32 + k, limit) for k in range(32)])
        on(choice_kernel, x)[(1,)](x, out, first, n, scale, words, BLOCK=BLOCK)
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
        return dropout_op(x.contiguous(), p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
