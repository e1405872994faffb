# labs/lab4_production_slice/dropout.py | wrong everywhere | randint4x gives 32 bits as uint32 (0 to 2^32 - 1), but `uniform` multiplies by UNIT = 2^-31, as if 31 bits came, so the numbers are uniform in [0, 2) and only a share p / 2 is dropped; UNIT must be 2^-32 (or tl.rand4x used). Shows for every p between 0 and 1; p = 0 and p = 1 are right.
"""Dropout from the integers of Philox."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

UNIT = tl.constexpr(1.0 / 2147483648.0)
CONFIGS = [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((256, 4), (512, 4), (1024, 8))]


@triton.jit
def uniform(bits):
    """Integers of the generator as numbers of fp32."""
    return bits.to(tl.float32) * UNIT


@triton.jit
def four_numbers(seed, counters, BLOCK: tl.constexpr):
    """Four numbers for each of BLOCK counters, those of a counter next to each other."""
    a, b, c, d = tl.randint4x(seed, counters)
    bits = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))
    return uniform(bits)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale where the number of the element is at least p."""
    pid = tl.program_id(axis=0)
    number = four_numbers(seed, pid * BLOCK + tl.arange(0, BLOCK), BLOCK)
    offs = pid.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(number >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of x with probability p."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The same function of dy."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Dropout in training, x in evaluation."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
