# labs/lab4_production_slice/dropout.py | error | dropout_kernel: the joined numbers keep the shape (BLOCK, 4) (as joined (BLOCK, 2, 2)) while x is a block of 4 * BLOCK, so tl.where / the comparison does not broadcast and the kernel does not compile. random must be reshaped to (4 * BLOCK,).
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

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). Program k has BLOCK
    counters of the generator, from k * BLOCK on, and four elements for each counter.
    """
    program = tl.program_id(axis=0)
    first = program * BLOCK
    a, b, c, d = tl.rand4x(seed, first + tl.arange(0, BLOCK))
    random = tl.join(tl.join(a, b), tl.join(c, d))
    
    elements = program.to(tl.int64) * 4 * BLOCK + tl.arange(0, 4 * BLOCK)
    live = elements < n
    keep = random >= p
    x = tl.load(x_ptr + elements, mask=live, other=0.0).to(tl.float32)
    tl.store(y_ptr + elements, tl.where(keep, x * scale, 0.0).to(y_ptr.dtype.element_ty), mask=live)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
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
        ctx.p, ctx.seed = p, seed
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        return dropout_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    return Dropout.apply(x, p, seed) if training else x
