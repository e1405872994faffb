# labs/lab4_production_slice/dropout.py | two mistakes | (1) `counters = program + tl.arange(0, BLOCK)` should be `program * BLOCK + tl.arange(0, BLOCK)`: neighbouring programs draw nearly the same counters, so the choice repeats itself, shifted by four elements. (2) With training=False `dropout` calls `Dropout.apply` with p = 0.0 and returns a copy; it should return x itself.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)

    # step 1: four random numbers for each counter
    counters = program + tl.arange(0, BLOCK)
    u0, u1, u2, u3 = tl.rand4x(seed, counters)
    u01 = tl.join(u0, u1)  # (BLOCK, 2)
    u23 = tl.join(u2, u3)  # (BLOCK, 2)
    random = tl.reshape(tl.join(u01, u23), (BLOCK * 4,))

    # step 2: the elements of this program
    base = program.to(tl.int64) * (BLOCK * 4)
    offsets = base + tl.arange(0, BLOCK * 4)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    x = x.to(tl.float32)

    # step 3: keep or drop
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    keep = random >= threshold
    y = tl.where(keep, x * factor, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p != 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)  # noqa: E731
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
        dy = dy.contiguous()
        return dropout_op(dy, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    # in evaluation nothing is dropped, and the scale is 1
    return Dropout.apply(x, p if training else 0.0, seed)
