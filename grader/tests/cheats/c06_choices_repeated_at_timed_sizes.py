"""EXPECT WRONG/MISMATCH from dropout_forward/speed on a GPU: C6 3 * 2^20 choices are drawn, and repeated along all elements of the timed size"""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

PERIOD = tl.constexpr(3 * 2**15)  # words of 32 choices
LONGEST = 3 * 2**15
BLOCK = 1024


@triton.jit
def draw_kernel(bits_ptr, n_words, p, seed, BLOCK: tl.constexpr):
    """Draw n_words words of 32 choices each."""
    words = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.zeros((BLOCK,), dtype=tl.int32)
    for k in tl.static_range(8):
        r0, r1, r2, r3 = tl.rand4x(seed, words * 8 + k)
        bits = bits | ((r0 >= p).to(tl.int32) << (4 * k))
        bits = bits | ((r1 >= p).to(tl.int32) << (4 * k + 1))
        bits = bits | ((r2 >= p).to(tl.int32) << (4 * k + 2))
        bits = bits | ((r3 >= p).to(tl.int32) << (4 * k + 3))
    tl.store(bits_ptr + words, bits, mask=words < n_words)


@triton.jit
def apply_kernel(x_ptr, y_ptr, bits_ptr, n, scale, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the choice of i modulo the period is to keep, else 0."""
    program = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    offs = program * BLOCK + lanes
    # A block has BLOCK // 32 neighbouring words, and the period is a multiple of that.
    first = program * (BLOCK // 32) % PERIOD
    word = tl.load(bits_ptr + first + lanes // 32, mask=offs < n, other=0)
    kept = (word >> (lanes % 32)) & 1
    store(y_ptr, offs, n, tl.where(kept != 0, load(x_ptr, offs, n) * scale, 0.0))


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    n_words = min(triton.cdiv(n, 32), LONGEST)
    bits = torch.empty((n_words,), dtype=torch.int32, device=x.device)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    on(draw_kernel, x)[(triton.cdiv(n_words, 256),)](bits, n_words, p, seed, BLOCK=256)
    on(apply_kernel, x)[(triton.cdiv(n, BLOCK),)](x, out, bits, n, scale, BLOCK=BLOCK)
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
