# labs/lab4_production_slice/dropout.py | right | a fixed number of programs walks over the tiles from the last to the first; the four numbers of a counter are not joined: each goes to one of four strided stores, and the comparison is turned round
"""Dropout by programs that take one tile after the other."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

MOST = 2048  # programs


@triton.jit
def one_of_four(x_ptr, y_ptr, places, n, number, p, scale):
    """Keep or drop the elements at `places` by their numbers."""
    inside = places < n
    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    dropped = number < p
    tl.store(y_ptr + places, tl.where(dropped, 0.0, x * scale).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def walk_kernel(x_ptr, y_ptr, n, tiles, p, scale, seed, COUNTERS: tl.constexpr):
    """Program k has the tiles tiles - 1 - k, and from there downwards in steps of the number of programs."""
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    for step in range(tl.program_id(0), tiles, tl.num_programs(0)):
        counters = (tiles - 1 - step) * COUNTERS + tl.arange(0, COUNTERS)
        a, b, c, d = tl.rand4x(seed, counters)
        places = counters.to(tl.int64) * 4
        one_of_four(x_ptr, y_ptr, places, n, a, p, scale)
        one_of_four(x_ptr, y_ptr, places + 1, n, b, p, scale)
        one_of_four(x_ptr, y_ptr, places + 2, n, c, p, scale)
        one_of_four(x_ptr, y_ptr, places + 3, n, d, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Each element is 0 with probability p, and else divided by 1 - p."""
    result = out if out is not None else torch.empty_like(x)
    n = x.numel()
    counters = 512
    tiles = triton.cdiv(n, 4 * counters)
    scale = 1.0 / (1.0 - p) if p != 1 else 0.0
    on(walk_kernel, x)[(min(tiles, MOST),)](x, result, n, tiles, p, scale, seed, COUNTERS=counters, num_warps=4)
    return result


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same choice, applied to dy."""
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
        """Return dx for dy."""
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout while training."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
