# labs/lab4_production_slice/dropout.py | wrong everywhere | undo_kernel, `number`: lane k of a counter takes the k-th number of tl.rand4x, but in dropout_kernel tl.join(tl.join(a, b), tl.join(c, d)) reshaped to one axis has the order a, c, b, d; so elements 4 i + 1 and 4 i + 2 exchange their random numbers in the backward pass and dx keeps other elements than y wherever one of the two is kept and the other not; wrong in every case of `dropout` with 0 < p < 1 and more than a few elements (dropout_forward and y are right). The order of both kernels must be the same, as by tl.join(tl.join(a, c), tl.join(b, d)) in dropout_kernel, or by dropout_op for dy.
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
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)
    random = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), (4 * BLOCK,))

    elements = program.to(tl.int64) * (4 * BLOCK) + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    y = tl.where(random >= tl.cast(p, tl.float32), x * tl.cast(scale, tl.float32), 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=elements < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def undo_kernel(dy_ptr, dx_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """dx[i] = dy[i] * scale where element i was kept, else 0; a row of four elements for each counter."""
    program = tl.program_id(axis=0)
    counters = program * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, counters)

    lane = tl.arange(0, 4)[None, :]
    left = tl.where(lane == 0, a[:, None], b[:, None])
    right = tl.where(lane == 2, c[:, None], d[:, None])
    number = tl.where(lane < 2, left, right)

    first = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    elements = 4 * first[:, None] + lane
    dy = tl.load(dy_ptr + elements, mask=elements < n, other=0.0).to(tl.float32)
    dx = tl.where(number >= tl.cast(p, tl.float32), dy * tl.cast(scale, tl.float32), 0.0)
    tl.store(dx_ptr + elements, dx.to(dx_ptr.dtype.element_ty), mask=elements < n)


def scale_for(p):
    """What a kept element is multiplied by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def programs_for(n):
    """The grid: four elements for each of the BLOCK counters of a program."""
    return lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself."""
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    on(dropout_kernel, x)[programs_for(n)](x, out, n, p, scale_for(p), seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    out = torch.empty_like(dy) if out is None else out
    n = dy.numel()
    on(undo_kernel, dy)[programs_for(n)](dy, out, n, p, scale_for(p), seed)
    return out


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_forward as an operator that torch.compile can look into."""
    return dropout_forward(x, p=p, seed=seed)


@triton_op("course::dropout_backward", mutates_args=())
def backward_op(dy: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """dropout_backward, likewise."""
    return dropout_backward(dy, p=p, seed=seed)


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
        return backward_op(dy.contiguous(), ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout_forward, also under torch.compile; x itself where not `training`."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
