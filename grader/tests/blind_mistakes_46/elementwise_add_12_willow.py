# labs/lab1_elementwise_add/elementwise_add.py | right | Block pointers whose base holds the 64-bit start and whose shape is what is left of the vector (`(0 - start) + n`, so that n = 1, a constant, works), so int64 offsets are never needed; the width comes from `@triton.heuristics` with a host function.
"""Add two vectors with block pointers; a heuristic picks the width of a block."""

import torch
import triton
import triton.language as tl

NARROWEST = 128
WIDEST = 2048


def width_of(args):
    """A power of two near n for short vectors, and a fixed width for all others."""
    return max(NARROWEST, min(WIDEST, triton.next_power_of_2(args["n"])))


@triton.heuristics({"BLOCK": width_of})
@triton.jit
def block_pointer_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # Offsets of a block pointer have 32 bits, so the base takes the 64-bit part, and the shape is what is left behind it.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = (0 - start) + n
    x_block = tl.make_block_ptr(x_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr + start, (left,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,))
    y = tl.load(y_block, boundary_check=(0,))
    tl.store(out_block, x + y, boundary_check=(0,))


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        block_pointer_add_kernel[grid](x, y, result, n)
    return result
