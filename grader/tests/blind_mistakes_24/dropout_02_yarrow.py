# labs/lab4_production_slice/dropout.py | corner | dropout_kernel: the mask `counters < n // 4` covers only whole groups of four, so the last n % 4 elements are never written (y and dx) where n is not a multiple of 4. It should be elements < n, for each element.
"""Dropout on tiles of counters by four: row c of a tile has the four elements that counter c decides."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": b}, num_warps=w) for b in (512, 1024) for w in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale or 0, on a tile of (BLOCK, 4) elements."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)

    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    # (BLOCK, 2, 2), then the last two axes become one
    random = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (BLOCK, 4))

    elements = counters.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    valid = tl.broadcast_to((counters < n // 4)[:, None], (BLOCK, 4))

    x = tl.load(x_ptr + elements, mask=valid, other=0.0).to(tl.float32)
    threshold = tl.cast(p, tl.float32)
    y = tl.where(random >= threshold, x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=valid)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of all elements of x."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout is linear with a fixed choice: its gradient is dropout of dy."""
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
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx, None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
