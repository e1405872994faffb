# labs/lab4_production_slice/dropout.py | wrong everywhere | uniform() maps the signed 32-bit number to [-1, 1) (`bits.to(tl.int32, bitcast=True) * 2^-31`) and not to [0, 1): every negative number is below p, so only (1 - p) / 2 of the elements are kept, half of them even for p = 0. Negative numbers should be folded (-bits - 1), or tl.rand4x used.
"""Dropout without a stored mask."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (512, 4), (1024, 8))]


@triton.jit
def uniform(bits):
    """32 random bits as a number in fp32: scaled by 2^-31."""
    return bits.to(tl.int32, bitcast=True).to(tl.float32) * 4.6566127342e-10


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale or 0; a program has BLOCK counters and four neighbours for each of them."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    b0, b1, b2, b3 = tl.randint4x(seed, counters)
    even = tl.join(uniform(b0), uniform(b2))
    odd = tl.join(uniform(b1), uniform(b3))
    random = tl.reshape(tl.join(even, odd), (4 * BLOCK,))
    at = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    kept = random >= tl.cast(p, tl.float32)
    y = tl.where(kept, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy / (1 - p) where the forward pass of this seed kept x, else 0: the same function of dy."""
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
