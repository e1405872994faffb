# labs/lab4_production_slice/dropout.py | corner | The four numbers of a counter decide elements COUNTERS apart (four blocks one behind the other), so the choice depends on the config that the autotuner takes; counter c must decide elements 4 c to 4 c + 3. Shows where two configs (or forward and backward with different ones) are compared for one seed.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"COUNTERS": 1024}, num_warps=8),
    triton.Config({"COUNTERS": 256}, num_warps=4),
    triton.Config({"COUNTERS": 64}, num_warps=1),
]


@triton.jit
def draw(seed, counters):
    """Uniform numbers, one row of four for each counter."""
    i, j, k, l = tl.randint4x(seed, counters)
    u = tl.join(tl.uint_to_uniform_float(i), tl.uint_to_uniform_float(j))
    v = tl.join(tl.uint_to_uniform_float(k), tl.uint_to_uniform_float(l))
    return tl.reshape(tl.join(u, v), (counters.shape[0], 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, COUNTERS: tl.constexpr):
    """A program has four stripes of COUNTERS neighbours."""
    counters = tl.program_id(axis=0).to(tl.int64) * COUNTERS + tl.arange(0, COUNTERS)
    lanes = tl.arange(0, COUNTERS)[:, None] + tl.arange(0, 4)[None, :] * COUNTERS
    offs = tl.program_id(axis=0).to(tl.int64) * (4 * COUNTERS) + lanes
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    dropped = draw(seed, counters.to(tl.int32)) < p
    y = tl.where(dropped, 0.0, x * scale)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n == 0:
        return y
    grid = lambda meta: (triton.cdiv(n, 4 * meta["COUNTERS"]),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, y, n, p, 0.0 if p >= 1 else 1 / (1 - p), seed)
    return y


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
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
