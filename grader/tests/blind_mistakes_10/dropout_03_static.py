# labs/lab4_production_slice/dropout.py | two mistakes | (1) the four numbers of a counter decide four elements that lie BLOCK apart (`start + k * BLOCK + tl.arange(0, BLOCK)` in dropout_kernel), so the choice depends on the config; counter c must decide elements 4 c to 4 c + 3. Shows where the autotuner takes another BLOCK, for another dtype or in the backward pass. (2) Dropout.backward gives dy to dropout_op as it is; must be dy.contiguous(). Shows for an expanded or transposed dy, as from sum().
"""Dropout: a program has BLOCK counters, and its elements in four pieces of BLOCK."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where a number is at least p, else 0. All accesses are coalesced."""
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    numbers = tl.rand4x(seed, program * BLOCK + lanes)
    start = program.to(tl.int64) * (4 * BLOCK)
    for k in tl.static_range(4):
        offs = start + k * BLOCK + lanes
        x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
        kept = numbers[k] >= tl.cast(p, tl.float32)
        y = tl.where(kept, x * scale, 0.0)
        tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0

    def grid(meta):
        return (triton.cdiv(n, 4 * meta["BLOCK"]),)

    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """dy / (1 - p) where the forward pass of this seed kept x, else 0."""
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
    return Dropout.apply(x, p, seed) if training else x
