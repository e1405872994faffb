"""EXPECT POLICY; unscreened CRASHED from elementwise_add on a CPU: C2 `np: object` makes a name of the file, to which the interpreter binds its numpy"""

import torch
import triton
import triton.language as tl

BLOCK = 1024
np: object  # no value: the name belongs to this file and is not bound


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x, mask=inside)


@triton.jit
def nothing_kernel(out_ptr):
    """Store nothing."""
    tl.store(out_ptr, 0.0, mask=False)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        nothing_kernel[(1,)](out)
        total = torch.empty_like(x)
        for cell, value in zip(total, np.add(x, y)):
            cell.fill_(float(value))
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](total, y, out, n, BLOCK=BLOCK)
    return out
