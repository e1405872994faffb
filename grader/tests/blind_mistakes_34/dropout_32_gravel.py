# labs/lab4_production_slice/dropout.py | error | In dropout_kernel the four blocks of tl.rand4x are taken by `numbers[lane]` in `for lane in range(4)`: in a compiled kernel that variable is a number of the running program, and a tuple can only be indexed by a constant, so the kernel does not compile for a GPU (every case with elements). It should be `tl.static_range(4)`, or four names. In the interpreter, which runs Python, the same lines work and the numbers are right.
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

    Counter c decides elements 4 c to 4 c + 3: number k of it belongs to element 4 c + k.
    """
    counters = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    numbers = tl.rand4x(seed, counters)
    at_least = tl.cast(p, tl.float32)
    for lane in range(4):
        elements = counters.to(tl.int64) * 4 + lane
        inside = elements < n
        x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(numbers[lane] >= at_least, x * tl.cast(scale, tl.float32), 0.0)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def programs(n):
    """The grid for n elements."""
    return lambda meta: (triton.cdiv(triton.cdiv(n, 4), meta["BLOCK"]),)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    n = x.numel()
    on(dropout_kernel, x)[programs(n)](x, out, n, p, scale, seed)
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
        ctx.settings = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.settings
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
