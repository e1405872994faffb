# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `pairwise_sum_kernel`, `both = tl.reshape(tl.interleave(x, y), (2, BLOCK))` with `tl.reduce(both, 0, _fold)` takes interleave (x0 y0 x1 y1 ...) for a concatenation, so lane i adds element i and element i + BLOCK of the interleaved block. It should be `tl.reshape(tl.interleave(x, y), (BLOCK, 2))` and `tl.reduce(both, 1, _fold)`. Wrong for every n > 0.
"""Add two vectors: both blocks are brought together, and pairs are folded with tl.reduce."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def _fold(left, right):
    return left + right


@triton.jit
def _lanes(n, BLOCK: tl.constexpr):
    """Elements of this program, and which of them exist."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    where = first + tl.arange(0, BLOCK)
    return where, where < n


@triton.jit
def pairwise_sum_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; the sum of each pair is a reduction over two numbers."""
    where, exists = _lanes(n, BLOCK)
    x = tl.load(x_ptr + where, mask=exists, other=0.0)
    y = tl.load(y_ptr + where, mask=exists, other=0.0)
    # One block of 2 * BLOCK numbers, seen as one row of x above one row of y.
    both = tl.reshape(tl.interleave(x, y), (2, BLOCK))
    # An own function keeps the dtype of the inputs: one rounding for each pair.
    total = tl.reduce(both, 0, _fold)
    tl.store(out_ptr + where, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        pairwise_sum_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
