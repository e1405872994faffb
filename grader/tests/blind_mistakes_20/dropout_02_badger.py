# labs/lab4_production_slice/dropout.py | error | four_numbers() returns the joined numbers with shape (BLOCK, 2, 2), and tl.where in dropout_kernel combines them with x of shape (BLOCK, 4): the shapes are incompatible, so the kernel does not compile. It should reshape to (BLOCK, 4).
"""Dropout with a tile of BLOCK counters by four elements."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]


@triton.jit
def four_numbers(seed, counters):
    """Return the four numbers of each counter, side by side."""
    a, b, c, d = tl.rand4x(seed, counters)
    left = tl.join(a, b)
    right = tl.join(c, d)
    return tl.join(left, right)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0.

    Row c of the tile is a counter, and its four columns are the elements that the counter decides.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    random = four_numbers(seed, counters)
    elements = counters[:, None].to(tl.int64) * 4 + tl.arange(0, 4)[None, :]
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
    keep = random >= tl.cast(p, tl.float32)
    y = tl.where(keep, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def keep_scale(p):
    """Return what a kept element is multiplied by."""
    if p == 1:
        return 0.0
    return 1.0 / (1.0 - p)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()

    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)](x, out, n, p, keep_scale(p), seed)
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
