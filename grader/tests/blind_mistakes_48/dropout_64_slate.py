# labs/lab4_production_slice/dropout.py | corner | The random number of an element depends on BLOCK, as the four numbers of a counter go to four blocks one behind the other (`offsets + BLOCK`, `offsets + 2 * BLOCK`, `offsets + 3 * BLOCK` in `dropout_kernel`), and `block = BYTES // x.element_size()` in `dropout_forward` depends on the dtype: 512 for fp32, 1024 for fp16 and bf16. Counter c should decide elements 4 c to 4 c + 3. The same seed drops other elements in fp16 or bf16 than in fp32 where n is above 512; within one dtype everything is right.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BYTES = 2048  # of a block of elements: 16 for each of 128 threads


@triton.jit
def keep_or_drop(x_ptr, y_ptr, offsets, n, random, p, scale):
    """Store x * scale at the offsets below n where `random` is at least p, and 0 elsewhere."""
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    Program k has BLOCK counters of the generator and four blocks of BLOCK elements, one for each of the four
    numbers of a counter: so neighbouring threads have neighbouring elements in each access.
    """
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    # torch.compile passes numbers as fp64.
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    first, second, third, fourth = tl.rand4x(seed, program * BLOCK + lanes)
    offsets = program.to(tl.int64) * (4 * BLOCK) + lanes
    keep_or_drop(x_ptr, y_ptr, offsets, n, first, p, scale)
    keep_or_drop(x_ptr, y_ptr, offsets + BLOCK, n, second, p, scale)
    keep_or_drop(x_ptr, y_ptr, offsets + 2 * BLOCK, n, third, p, scale)
    keep_or_drop(x_ptr, y_ptr, offsets + 3 * BLOCK, n, fourth, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape. The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    block = BYTES // x.element_size()
    grid = (triton.cdiv(n, 4 * block),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed, BLOCK=block, num_warps=4)
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
    if not training:
        return x
    return Dropout.apply(x, p, seed)
