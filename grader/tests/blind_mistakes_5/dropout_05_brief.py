# labs/lab4_production_slice/dropout.py | error | `Dropout.backward` returns only dx, one gradient for the three arguments x, p and seed of forward: autograd raises RuntimeError (incorrect number of gradients, expected 3, got 1) in every backward of `dropout`. It must return `dx, None, None`. dropout_forward and the forward of dropout work.
import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]

# rows: counters; columns: the four numbers of a counter


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    """y = x * scale or 0."""
    program = tl.program_id(axis=0)
    c = program * BLOCK + tl.arange(0, BLOCK)
    r0, r1, r2, r3 = tl.rand4x(seed, c)
    random = tl.join(tl.join(r0, r2), tl.join(r1, r3)).reshape(BLOCK, 4)
    at = c.to(tl.int64)[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    keep = random >= p
    y = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def _grid(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"] * 4),)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Dropout of x with the choice of `seed`."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    scale = 0.0 if p == 1 else 1 / (1 - p)
    on(dropout_kernel, x)[_grid(n)](x, out, n, p, scale, seed)
    return out


def dropout_backward(dy, *, p: float, seed: int, out=None) -> torch.Tensor:
    """Same choice, same factor."""
    return dropout_forward(dy, p=p, seed=seed, out=out)


@triton_op("course::dropout", mutates_args=())
def dropout_op(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    return dropout_forward(x, p=p, seed=seed)


class Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, seed):
        y = dropout_op(x, p, seed)
        ctx.p, ctx.seed = p, seed
        return y

    @staticmethod
    def backward(ctx, dy):
        dx = dropout_op(dy.contiguous(), ctx.p, ctx.seed)
        return dx


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    """Differentiable dropout."""
    if not training:
        return x
    return Dropout.apply(x, p, seed)
