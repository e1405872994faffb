# labs/lab1_elementwise_add/elementwise_add.py | right | No mask anywhere: whole blocks in one launch, and the rest (< 1024 elements) by one program that adds, for each bit set in `rest`, an unmasked run of that power of two (512, ..., 1). Offsets are int64 in the first launch; in the second the type of `done`, which cannot overflow since it is a multiple of 1024.
"""Add two vectors without any mask: whole blocks first, then the rest in runs of 512, 256, ..., 2, 1."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BITS = 10  # BLOCK is 2 ** BITS


@triton.jit
def add_run(x_ptr, y_ptr, out_ptr, start, WIDTH: tl.constexpr):
    """Add WIDTH elements from start on, all of which exist."""
    offs = start + tl.arange(0, WIDTH)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def whole_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    add_run(x_ptr, y_ptr, out_ptr, tl.program_id(axis=0).to(tl.int64) * BLOCK, BLOCK)


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, done, rest, BITS: tl.constexpr):
    """One program adds the `rest` < 2 ** BITS elements from `done` on.

    Each bit that is set in `rest` stands for a run of that many elements, longest first. Before a run of 2 ** k elements lie
    those of the higher bits.
    """
    for k in tl.static_range(BITS):
        if (rest >> k) % 2 == 1:
            before = (rest >> (k + 1)) * (2 << k)
            add_run(x_ptr, y_ptr, out_ptr, done + before, 1 << k)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    blocks, rest = divmod(x.numel(), BLOCK)
    if blocks > 0:
        whole_kernel[(blocks,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        rest_kernel[(1,)](x, y, out, blocks * BLOCK, rest, BITS=BITS)
    return out
