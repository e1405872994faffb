# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add`, `work = tl.float16 if x.element_size() == 2 else tl.float32` takes bf16 for fp16; it should be fp32 for bf16 (or for all dtypes). bf16 only: numbers outside of the range of fp16 become inf or 0, and some sums are rounded twice.
"""Add two vectors in the precision of their elements, with a loop over blocks in each program."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 2048


@triton.jit
def strided_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    WORK: tl.constexpr,  # the dtype of the addition
    BLOCK: tl.constexpr,
):
    """Program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0) * BLOCK
    lane = tl.arange(0, BLOCK)
    for begin in range(start, n, step):
        offs = begin + lane
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists).to(WORK)
        y = tl.load(y_ptr + offs, mask=exists).to(WORK)
        tl.store(out_ptr + offs, (x + y).to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        work = tl.float16 if x.element_size() == 2 else tl.float32
        programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
        strided_add_kernel[(programs,)](x, y, out, n, WORK=work, BLOCK=BLOCK)
    return out
