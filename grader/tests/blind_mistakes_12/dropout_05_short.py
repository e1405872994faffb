# labs/lab4_production_slice/dropout.py | contract | without out= the result is allocated by torch.empty without a dtype, so it is fp32 for fp16 and bf16 inputs (dropout_forward without out, and dropout); it must have the dtype of x (torch.empty_like(x)); the numbers are right
"""Dropout; the seed replaces the mask."""
import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op


@triton.autotune(configs=[triton.Config({"BLOCK": 512}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    r0, r1, r2, r3 = tl.rand4x(seed, pid * BLOCK + tl.arange(0, BLOCK))
    r = tl.reshape(tl.join(tl.join(r0, r1), tl.join(r2, r3)), (4 * BLOCK,))
    i = pid.to(tl.int64) * 4 * BLOCK + tl.arange(0, 4 * BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0).to(tl.float32)
    y = tl.where(r < p, 0.0, x * scale)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


def dropout_forward(x, *, p: float, seed: int, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n = x.numel()
    keep = 1 - p
    launch = on(dropout_kernel, x)[lambda meta: (triton.cdiv(n, 4 * meta["BLOCK"]),)]
    launch(x, out, n, p, 1 / keep if keep > 0 else 0.0, seed)
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
    return Dropout.apply(x, p, seed) if training else x
