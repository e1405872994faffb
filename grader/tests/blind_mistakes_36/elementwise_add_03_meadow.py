# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors without a mask: the last program steps back until its block fits."""

import torch
import triton
import triton.language as tl

WIDEST = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,  # at most n
    FITS: tl.constexpr,  # n is a multiple of BLOCK
):
    """out[i] = x[i] + y[i]; each program owns BLOCK elements that all exist.

    Where n is no multiple of BLOCK, the last block overlaps the one before it. Both programs store the same sums there.
    """
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    if not FITS:
        start = tl.minimum(start, n - BLOCK)
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # The largest power of two that is at most n, and at most WIDEST.
    block = min(WIDEST, 1 << (n.bit_length() - 1))
    elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, FITS=n % block == 0)
    return out
