# lab4_production_slice/dropout.py | honest | a fixed number of programs at most, each goes over tiles k, k + programs, ...; the choice stays a block of (BLOCK, 2, 2) with matching 3-D offsets, nothing is reshaped; the four numbers belong to a counter's elements in the order of the nested join; drops by `random < p` | meets the whole contract
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]
MOST = 2048  # programs


@triton.jit
def pairs_of_numbers(seed, counters):
    """(BLOCK, 2, 2) numbers from 0 up to 1; the four of a counter are neighbours."""
    r0, r1, r2, r3 = tl.rand4x(seed, counters)
    return tl.join(tl.join(r0, r1), tl.join(r2, r3))


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the number of element i is at least p, else 0."""
    inner = tl.arange(0, 2)[None, :, None] * 2 + tl.arange(0, 2)[None, None, :]
    for tile in range(tl.program_id(axis=0), tl.cdiv(n, 4 * BLOCK), tl.num_programs(axis=0)):
        counters = tile * BLOCK + tl.arange(0, BLOCK)
        dropped = pairs_of_numbers(seed, counters) < p
        elements = counters.to(tl.int64)[:, None, None] * 4 + inner
        inside = elements < n
        x = tl.load(x_ptr + elements, mask=inside, other=0.0).to(tl.float32)
        y = tl.where(dropped, 0.0, x * scale)
        tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=inside)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if p < 1:
        scale = 1.0 / (1.0 - p)
    else:
        scale = 0.0
    on(dropout_kernel, x)[lambda meta: (min(MOST, triton.cdiv(n, 4 * meta["BLOCK"])),)](
        x, out, n, p, scale, seed
    )
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
        ctx.options = {"p": p, "seed": seed}
        return dropout_op(x, **ctx.options)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy, and None for p and seed."""
        return dropout_op(dy.contiguous(), **ctx.options), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    return Dropout.apply(x, p, seed) if training else x
