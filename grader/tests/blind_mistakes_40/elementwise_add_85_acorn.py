# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In elementwise_add `blocks_each = blocks // programs` rounds down, it should be `triton.cdiv(blocks, programs)`: with more than 528 blocks that 528 does not divide, the end of out is unwritten (n = 2^20 + 3, fp32 and bf16; 2^28). (2) In runs_kernel the sum starts from `total = tl.zeros((BLOCK,), dtype=tl.float32)`, so -0.0 + -0.0 becomes 0.0; it should start from the elements of x (values "edges", any dtype).
"""Add two vectors with a fixed number of programs; each has a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 528  # four for each of the 132 multiprocessors of an H200


@triton.jit
def plus(total, ptr, offs, exists):
    """total and one more vector, in fp32."""
    return total + tl.load(ptr + offs, mask=exists).to(tl.float32)


@triton.jit
def runs_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    blocks_each,  # blocks of one program
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns blocks pid * blocks_each to (pid + 1) * blocks_each - 1.

    Sums are fp32, and rounded once, when they are stored.
    """
    first = tl.program_id(axis=0).to(tl.int64) * blocks_each
    for k in range(0, blocks_each):
        offs = (first + k) * BLOCK + tl.arange(0, BLOCK)
        exists = offs < n
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        total = plus(total, x_ptr, offs, exists)
        total = plus(total, y_ptr, offs, exists)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        programs = min(blocks, PROGRAMS)
        blocks_each = blocks // programs
        runs_kernel[(programs,)](x, y, out, n, blocks_each, BLOCK=BLOCK)
    return out
