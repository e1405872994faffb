# labs/lab4_production_slice/dropout.py | contract | dropout: where not training it runs the operator with p = 0 and returns a copy; README: x itself, without the operator, in evaluation
"""Dropout without a stored exists."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    random = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))
    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    exists = elements < n
    x = tl.load(x_ptr + elements, mask=exists, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=exists)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    grid = lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
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
    rate = p if training else 0.0
    return Dropout.apply(x, rate, seed)
