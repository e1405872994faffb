# labs/lab4_production_slice/dropout.py | two mistakes | (1) every program draws the counters 0 to BLOCK - 1 and only adds its number to the seed, `tl.rand4x(seed + pid, tl.arange(0, BLOCK))`: program k of seed s has the numbers of program k - 1 of seed s + 1, and the choice depends on BLOCK, so on the config; must be rand4x(seed, pid * BLOCK + arange). Shows where there is more than one program (neighbouring seeds, other configs). (2) Dropout.backward hands dy to the operator as it is; must be dy.contiguous(). Shows where dy is expanded or transposed, or has gaps.
"""Low-memory dropout."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op


@triton.autotune(configs=[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    r0, r1, r2, r3 = tl.rand4x(seed + pid, tl.arange(0, BLOCK))
    random = tl.join(tl.join(r0, r1), tl.join(r2, r3)).reshape(4 * BLOCK)

    block_start = pid.to(tl.int64) * 4 * BLOCK
    offsets = block_start + tl.arange(0, 4 * BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    keep = random >= p
    output = tl.where(keep, x * scale, 0.0)
    tl.store(y_ptr + offsets, output.to(y_ptr.dtype.element_ty), mask=mask)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_elements = x.numel()
    scale = 1 / (1 - p) if p != 1 else 0.0
    grid = lambda meta: (triton.cdiv(n_elements, 4 * meta["BLOCK"]),)
    on(dropout_kernel, x)[grid](x, out, n_elements, p, scale, seed)
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
        return dropout_op(dy, ctx.p, ctx.seed), None, None


def dropout(x, *, p: float = 0.5, seed: int, training: bool = True) -> torch.Tensor:
    if training:
        return Dropout.apply(x, p, seed)
    return x
