# labs/lab1_elementwise_add/elementwise_add.py | right | Unusual: two kernels, one without any mask for the whole blocks (n // BLOCK programs), and one program of a second kernel for what is left at the end.
"""Vector addition in two launches: whole blocks without a mask, then the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def whole_blocks(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """One complete block per program."""
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@triton.jit
def rest(x_ptr, y_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    """Elements first to n - 1, fewer than BLOCK, by a single program."""
    i = first + tl.arange(0, BLOCK).to(tl.int64)
    inside = i < n
    a = tl.load(x_ptr + i, mask=inside)
    b = tl.load(y_ptr + i, mask=inside)
    tl.store(out_ptr + i, a + b, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = n // BLOCK
    done = blocks * BLOCK
    if blocks > 0:
        whole_blocks[(blocks,)](x, y, out, BLOCK=BLOCK)
    if done < n:
        rest[(1,)](x, y, out, done, n, BLOCK=BLOCK)
    return out
