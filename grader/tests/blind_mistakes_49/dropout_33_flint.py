# labs/lab4_production_slice/dropout.py | corner | In `dropout_forward`, `counters = n // 4` should be rounded up (`triton.cdiv(n, 4)`). The last n % 4 elements are never written where n // 4 is a multiple of BLOCK: n = 1, 2, 3 (nothing is launched), 4099 = 4 * 1024 + 3, and so on; right for other n. The same in both passes of `dropout`.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))
]


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """The four numbers of each counter as a row of a (BLOCK, 4) tile."""
    a, b, c, d = tl.rand4x(seed, counters)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (BLOCK, 4))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    Program k has BLOCK counters of the generator, from k * BLOCK on; the elements of a counter are a row of
    its tile.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    random = four_numbers(seed, counters, BLOCK)
    elements = 4 * counters.to(tl.int64)[:, None] + tl.arange(0, 4)[None, :]
    inside = elements < n
    x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    counters = n // 4
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(counters, meta["BLOCK"]),)  # noqa: E731
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
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
