# labs/lab4_production_slice/dropout.py | two mistakes | (1) The counters are `i * BLOCK + arange`, with the number of the round but not of the program: every program draws the same numbers. It must be `block * BLOCK`. (2) `dropout` ignores `training`: it drops in evaluation as well.
"""Dropout. A program does several blocks of counters, one after the other."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 256, "ROUNDS": 2}, num_warps=4), triton.Config({"BLOCK": 512, "ROUNDS": 2}, num_warps=8)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    """y[i] = x[i] * scale where the i-th random number of `seed` is at least p, else 0."""
    program = tl.program_id(axis=0)
    for i in tl.static_range(ROUNDS):
        block = program * ROUNDS + i
        counters = i * BLOCK + tl.arange(0, BLOCK)
        a, b, c, d = tl.rand4x(seed, counters)
        random = tl.ravel(tl.join(tl.join(a, c), tl.join(b, d)))
        elements = block.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
        x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32) * scale
        zero = tl.zeros_like(x)
        tl.store(y_ptr + elements, tl.where(random < p, zero, x).to(y_ptr.dtype.element_ty), mask=elements < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0
    if p != 1:
        scale = 1 / (1 - p)
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"] * meta["ROUNDS"]),)]
    launch(x, out, n, p, scale, seed)
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
        ctx.numbers = (p, seed)
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        p, seed = ctx.numbers
        return dropout_op(dy.contiguous(), p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed)
