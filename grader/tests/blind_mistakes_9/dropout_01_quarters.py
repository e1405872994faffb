# labs/lab4_production_slice/dropout.py | contract | the four numbers of counter c go to four quarters of the program's elements that lie BLOCK apart (`quarter` at base + q * BLOCK), so the choice depends on BLOCK, which the autotuner picks: the same seed must give the same choice for every config, and counter c must decide elements 4 c to 4 c + 3. Every single run has a right share and factor; two configs (512, 1024) differ, so forward and backward may too
"""Dropout by four quarters: each of the four numbers of a counter has a block of its own."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((512, 4), (1024, 4), (1024, 8))]


@triton.jit
def quarter(x_ptr, y_ptr, offsets, n, random, p, scale):
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    program = tl.program_id(axis=0)
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    lanes = tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, program * BLOCK + lanes)
    base = program.to(tl.int64) * (4 * BLOCK) + lanes
    quarter(x_ptr, y_ptr, base, n, a, p, scale)
    quarter(x_ptr, y_ptr, base + BLOCK, n, b, p, scale)
    quarter(x_ptr, y_ptr, base + 2 * BLOCK, n, c, p, scale)
    quarter(x_ptr, y_ptr, base + 3 * BLOCK, n, d, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.p = p
        ctx.seed = seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if not training:
        return x
    return Dropout.apply(x, p, seed)
