# labs/lab4_production_slice/dropout.py | contract | The four numbers of a counter go to elements that lie BLOCK apart (dropout_kernel, `first + BLOCK` and so on), and dropout_forward takes BLOCK = 2048 // x.element_size(): so one seed gives another choice in 16 bits than in fp32. The README asks for the same choice for every dtype and config: counter c should decide elements 4 c to 4 c + 3, whatever BLOCK is.
"""Dropout without a stored mask: the backward pass draws the same random numbers again."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

BYTES = 2048  # of a quarter: the loads of a program are four quarters, one behind the other


@triton.jit
def keep_or_drop(x_ptr, y_ptr, elements, n, random, p, scale):
    """Load elements of x, keep those whose random number is at least p, scale them, and store."""
    mask = elements < n
    x = tl.load(x_ptr + elements, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(random >= p, x * scale, 0.0)
    tl.store(y_ptr + elements, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y[i] = x[i] * scale where the random number of element i is at least p, else 0.

    x and y are n contiguous elements of one dtype; the numbers are uniform in [0, 1). A program has BLOCK
    counters and 4 * BLOCK elements, in four quarters: each of the four numbers serves one quarter, so that all
    loads are of neighbours and nothing has to be interleaved.
    """
    # torch.compile hands over fp64
    p = tl.cast(p, tl.float32)
    scale = tl.cast(scale, tl.float32)
    program = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    a, b, c, d = tl.rand4x(seed, program * BLOCK + lanes)
    first = program.to(tl.int64) * (4 * BLOCK) + lanes
    keep_or_drop(x_ptr, y_ptr, first, n, a, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + BLOCK, n, b, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + 2 * BLOCK, n, c, p, scale)
    keep_or_drop(x_ptr, y_ptr, first + 3 * BLOCK, n, d, p, scale)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """x / (1 - p) with probability 1 - p and 0 with probability p, each element for itself.

    x is contiguous, of any shape, fp32, fp16 or bf16, and 0 <= p <= 1. The same seed gives the same choice.
    The result goes to `out`, like x, where one is given. After Srivastava et al., JMLR 15, 2014; with the
    generator Philox of Salmon et al., 2011.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    # 512 elements of 4 bytes or 1024 of 2: the same number of bytes for each load
    block = BYTES // x.element_size()
    if p == 1:
        scale = 0.0
    else:
        scale = 1.0 / (1.0 - p)
    launch = on(dropout_kernel, x)[(triton.cdiv(n, 4 * block),)]
    launch(x, out, n, float(p), scale, seed, BLOCK=block, num_warps=4)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """The gradient of dropout: dy / (1 - p) where the forward pass of this seed kept x, else 0."""
    # linear in x, with a matrix that is diagonal: the gradient is the same function of dy
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
        y = dropout_op(x, p, seed)
        ctx.p = p
        ctx.seed = seed
        return y

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
