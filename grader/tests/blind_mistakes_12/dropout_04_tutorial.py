# labs/lab4_production_slice/dropout.py | two mistakes | (1) only n // 4 whole counters are counted (mask and grid), so the last n % 4 elements stay unwritten; it must be rounded up, with the mask offs < n; (2) backward hands dy to the operator as it is, where it must be dy.contiguous(): an expanded, transposed or strided gradient is read wrongly (dx wrong or out of bounds)
"""
Low-memory dropout
==================

In this file we write dropout such that no mask of bits has to be kept for the backward pass. What has to be
kept is one integer, the seed.
"""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

# The number of counters of a program. A counter of Philox gives four numbers, so four elements.
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["counters"])
@triton.jit
def dropout_kernel(
    x_ptr,  # pointer to the input
    y_ptr,  # pointer to the output
    counters,  # how many counters decide about all of the elements
    p,  # probability that an element of x is changed to zero
    scale,  # factor of the others
    seed,  # the seed of the choice
    BLOCK: tl.constexpr,
):
    # Draw the numbers of this program.
    pid = tl.program_id(axis=0)
    r0, r1, r2, r3 = tl.rand4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    # Bring them into the order of the elements: r0[0], r1[0], r2[0], r3[0], r0[1], ...
    random = tl.interleave(tl.interleave(r0, r2), tl.interleave(r1, r3))
    # Load the data of this program.
    offsets = pid.to(tl.int64) * (BLOCK * 4) + tl.arange(0, BLOCK * 4)
    mask = offsets // 4 < counters
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    # Keep or drop, and write back.
    output = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offsets, output.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    counters = x.numel() // 4
    # With p = 1 nothing is kept, so the factor is of no importance, but it has to be a number.
    scale = 1 / (1 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(counters, meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, counters, p, scale, seed)
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
        dx = dropout_op(dy, ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
