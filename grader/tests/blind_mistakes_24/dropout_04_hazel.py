# labs/lab4_production_slice/dropout.py | right | right
"""Dropout whose programs go through several blocks of counters, one after the other."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# counters of a block, and blocks of a program
SHAPES = [(256, 4), (512, 2), (1024, 1)]
CONFIGS = [triton.Config({"BLOCK": block, "PARTS": parts}, num_warps=4) for block, parts in SHAPES]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Program k has the blocks k * PARTS to k * PARTS + PARTS - 1; counter c decides elements 4 c to 4 c + 3."""
    first = tl.program_id(axis=0) * PARTS
    limit = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    for part in tl.static_range(PARTS):
        block = first + part
        a, b, c, d = tl.rand4x(seed, block * BLOCK + tl.arange(0, BLOCK))
        # a c a c ... and b d b d ... give a b c d a b c d ...
        random = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))

        # pointers of this block, and how many of its elements exist
        begin = block.to(tl.int64) * (4 * BLOCK)
        lane = tl.arange(0, 4 * BLOCK)
        exists = lane < n - begin
        x = tl.load(x_ptr + begin + lane, mask=exists, other=0.0).to(tl.float32)
        dropped = random < limit
        y = tl.where(dropped, 0.0, x * factor)
        tl.store(y_ptr + begin + lane, y.to(y_ptr.dtype.element_ty), mask=exists)


def programs(n: int):
    """The grid for n elements."""
    return lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["PARTS"]),)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Each element of x is dropped with probability p, or divided by 1 - p."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    keep = 1.0 - p
    scale = 1.0 / keep if keep > 0.0 else 0.0
    on(dropout_kernel, x)[programs(n)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same function, of dy."""
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
        ctx.choice = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.choice
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
