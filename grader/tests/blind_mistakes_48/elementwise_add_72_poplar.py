# labs/lab1_elementwise_add/elementwise_add.py | right | Unusual: no mask at all. Whole blocks are loaded and stored without one; the last, partial block is taken apart into runs whose lengths are the powers of two of its binary number, in an unrolled loop with a helper.
"""Add two vectors without any mask: whole blocks, and a rest that is taken apart into powers of two."""

import torch
import triton
import triton.language as tl

LOG_BLOCK = 10  # a block has 2 ** 10 elements


@triton.jit
def add_run(x_ptr, y_ptr, out_ptr, first, LENGTH: tl.constexpr):
    """Add LENGTH elements from `first` on, all of which exist."""
    offs = first + tl.arange(0, LENGTH)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    LOG_BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * 2**LOG_BLOCK to (pid + 1) * 2**LOG_BLOCK - 1.

    Where fewer are left, say 13, the program adds runs of 8, 4 and 1: one for each bit of that number.
    """
    pid = tl.program_id(axis=0)
    first = pid.to(tl.int64) << LOG_BLOCK
    left = n - first
    if left >= (1 << LOG_BLOCK):
        add_run(x_ptr, y_ptr, out_ptr, first, 1 << LOG_BLOCK)
    else:
        for k in tl.static_range(LOG_BLOCK):
            # the runs of the higher bits come first, so this one begins behind all of them
            bit = LOG_BLOCK - 1 - k
            above = (left >> (bit + 1)) << (bit + 1)
            if ((left >> bit) & 1) == 1:
                add_run(x_ptr, y_ptr, out_ptr, first + above, 1 << (LOG_BLOCK - 1 - k))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, 1 << LOG_BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, LOG_BLOCK=LOG_BLOCK)
    return out
