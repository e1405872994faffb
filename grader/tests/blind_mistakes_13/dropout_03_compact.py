# labs/lab4_production_slice/dropout.py | corner | backward makes dy contiguous only where a stride is 0 (`if any(step == 0 ...)`); a dy that is transposed or every second column goes to the kernel as it lies in memory, so `dy.contiguous()` should be called always.
"""Dropout without a stored mask."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]


@triton.jit
def draw(seed, counters, BLOCK: tl.constexpr):
    """4 * BLOCK numbers in [0, 1): those of a counter are neighbours."""
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    left = tl.join(r0, r1)
    right = tl.join(r2, r3)
    return tl.join(left, right).reshape(4 * BLOCK)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale, or 0 where the random number of i is below p."""
    program = tl.program_id(axis=0)
    random = draw(seed, program * BLOCK + tl.arange(0, BLOCK), BLOCK)
    i = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32) * tl.cast(scale, tl.float32)
    x = tl.where(random < tl.cast(p, tl.float32), 0.0, x)
    tl.store(y_ptr + i, x.to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if p == 1:
        scale = 0.0
    else:
        scale = 1.0 / (1.0 - p)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)  # noqa: E731
    on(dropout_kernel, x)[grid](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout, the same function of dy."""
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
        # the gradient of a sum is expanded, with strides of 0
        if any(step == 0 for step in dy.stride()):
            dy = dy.contiguous()
        return dropout_op(dy, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
