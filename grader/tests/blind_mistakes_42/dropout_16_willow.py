# labs/lab4_production_slice/dropout.py | right | Nothing is wrong. Unusual: persistent programs go from block to block by a `while` loop; tiles are two-dimensional, (BLOCK, 4), with a row for each counter, made by `tl.join` and `tl.reshape` in a helper function; the comparison is turned round (dropped where the number is below p); and the choice does not depend on BLOCK.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

PROGRAMS = 4224  # at most: each goes from block to block
CONFIGS = [
    triton.Config({"BLOCK": 256}, num_warps=4),
    triton.Config({"BLOCK": 512}, num_warps=4),
    triton.Config({"BLOCK": 1024}, num_warps=8),
]


@triton.jit
def numbers_of(seed, counters, BLOCK: tl.constexpr):
    """Return the four numbers of each of BLOCK counters, (BLOCK, 4) fp32 in [0, 1)."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype. Row c of a tile (BLOCK, 4) has the elements 4 * c to
    4 * c + 3, decided by counter c; program k computes the tiles k, k + programs, and so on.
    """
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    blocks = tl.cdiv(n, 4 * BLOCK)
    block = tl.program_id(axis=0)
    while block < blocks:
        counters = block * BLOCK + tl.arange(0, BLOCK)
        elements = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
        inside = elements < n
        x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
        dropped = numbers_of(seed, counters, BLOCK) < threshold
        y = tl.where(dropped, 0.0, x * factor)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)
        block += tl.num_programs(axis=0)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(n, 4 * meta["BLOCK"])),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
