# labs/lab4_production_slice/dropout.py | honest | Four loads and stores with stride 4, one for each number of a counter, no join; the scale is computed in an unusual way.
"""Dropout; the four numbers of a counter are handled one by one, without a join."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": 1024}, num_warps=8), triton.Config({"BLOCK": 256}, num_warps=4)]


@triton.jit
def keep_or_drop(src, dst, at, n, number, p, scale):
    exists = at < n
    value = tl.load(src + at, mask=exists, other=0.0).to(tl.float32)
    value = tl.where(number < p, 0.0, value * scale)
    tl.store(dst + at, value.to(dst.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(src, dst, n, p, scale, seed, BLOCK: tl.constexpr):
    counter = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    w, x, y, z = tl.rand4x(seed, counter)
    first = counter.to(tl.int64) * 4
    keep_or_drop(src, dst, first, n, w, p, scale)
    keep_or_drop(src, dst, first + 1, n, x, p, scale)
    keep_or_drop(src, dst, first + 2, n, y, p, scale)
    keep_or_drop(src, dst, first + 3, n, z, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Every element is 0 with probability p, and else divided by 1 - p."""
    result = out
    if result is None:
        result = torch.empty_like(x)
    try_scale = 1.0 - p
    if try_scale > 0.0:
        try_scale = 1.0 / try_scale
    counters = (x.numel() + 3) // 4
    on(dropout_kernel, x)[lambda meta: (triton.cdiv(counters, meta["BLOCK"]),)](x, result, x.numel(), p, try_scale, seed)
    return result


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout is linear: its gradient is dropout of dy with the same choice."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x, p, seed):
        ctx.settings = {"p": p, "seed": seed}
        return dropout_op(x, p, seed)

    @staticmethod
    def backward(ctx, dy):
        p, seed = ctx.settings["p"], ctx.settings["seed"]
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return dropout_op(dy, p, seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout; nothing happens in evaluation."""
    if training:
        return Dropout.apply(x, p, seed)
    return x
