# labs/lab4_production_slice/dropout.py | contract | The four blocks of tl.rand4x are used one behind the other (`base + 1 * BLOCK + lane` takes r1 and so on), so which number decides an element depends on BLOCK and the choice changes with the config that the autotuner picks; counter c should decide elements 4 c to 4 c + 3, with the four blocks interleaved by tl.join.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, offs, n, random, p, scale):
    """Elements offs of y from those of x; random has one number for each of them."""
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    lane = tl.arange(0, BLOCK)
    # All four numbers of a counter are used: one for each quarter of this program's elements.
    r0, r1, r2, r3 = tl.rand4x(seed, program * BLOCK + lane)

    base = program.to(tl.int64) * (4 * BLOCK)
    keep_or_drop(x_ptr, y_ptr, base + lane, n, r0, p, scale)
    keep_or_drop(x_ptr, y_ptr, base + 1 * BLOCK + lane, n, r1, p, scale)
    keep_or_drop(x_ptr, y_ptr, base + 2 * BLOCK + lane, n, r2, p, scale)
    keep_or_drop(x_ptr, y_ptr, base + 3 * BLOCK + lane, n, r3, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
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
