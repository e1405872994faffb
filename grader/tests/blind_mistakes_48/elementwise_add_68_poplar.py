# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `size = n.to(tl.int64)`: an integer argument that is 1 is a constant, which has no method `to`, so the kernel does not compile for n = 1; it should be `tl.cast(n, tl.int64)` or `n + tl.zeros((), tl.int64)` or the like. All other n are right.
"""Add two vectors: every program computes for itself which part of the vectors is its own."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 4096


@triton.jit
def up(a, b):
    """a / b, rounded up."""
    return (a + b - 1) // b


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the elements from `begin` to `end`."""
    size = n.to(tl.int64)
    pid = tl.program_id(axis=0).to(tl.int64)
    part = up(up(size, BLOCK), tl.num_programs(axis=0)) * BLOCK
    begin = pid * part
    end = tl.minimum(begin + part, size)
    for start in range(begin, end, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        inside = offs < n
        total = tl.load(x_ptr + offs, mask=inside)
        total += tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, total, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
