# labs/lab4_production_slice/dropout.py | contract | in dropout_kernel program k draws the counters from k * 4 * BLOCK on (`tl.rand4x(seed, (first + lanes).to(tl.int32))` with `first`, the program's first element) instead of those from k * BLOCK on: no counter is drawn twice, so share, scale and independence are right, but which number an element gets depends on BLOCK, and so on the config that the autotuner picks; broken is "A seed gives the same choice in every call, on every machine, for every dtype and config". Shows under another config in all tensors with more elements than the first program has (more than 1024). It should be the counters program * BLOCK + lanes
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024)]


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, number, p, scale):
    """Store x * scale for these elements where their number is at least p, else 0."""
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(number < p, 0.0, x * scale)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    A program has 4 * BLOCK elements. Lane j has four of them, one behind the other, and a counter for these.
    """
    threshold = tl.cast(p, tl.float32)
    factor = tl.cast(scale, tl.float32)
    first = tl.program_id(axis=0).to(tl.int64) * (4 * BLOCK)
    lanes = tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, (first + lanes).to(tl.int32))
    quads = first + 4 * lanes
    keep_or_drop(x_ptr, y_ptr, quads, n, r0, threshold, factor)
    keep_or_drop(x_ptr, y_ptr, quads + 1, n, r1, threshold, factor)
    keep_or_drop(x_ptr, y_ptr, quads + 2, n, r2, threshold, factor)
    keep_or_drop(x_ptr, y_ptr, quads + 3, n, r3, threshold, factor)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    scale = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)
    n = x.numel()
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
    return Dropout.apply(x, p, seed) if training else x
