# labs/lab1_elementwise_add/elementwise_add.py | right | Nothing is wrong. Unusual: `triton.heuristics` computes the block from n and the item size, the number of warps depends on n, the programs take the blocks in descending order, and the int64 start is added to the pointers while the lanes stay int32.
"""Add two vectors: heuristics choose the block from the dtype, so that each thread moves 32 bytes per tensor."""

import torch
import triton
import triton.language as tl

BYTES_PER_THREAD = 32
LARGEST_WARPS = 8


def warps_for(n: int) -> int:
    """Few warps for a short vector, eight for any that fills the GPU."""
    return 1 if n <= 1024 else 4 if n <= 65536 else LARGEST_WARPS


def block_for(n: int, item_bytes: int) -> int:
    """Lanes of a block: two accesses of 16 bytes for each thread. A power of two for 2 and 4 bytes an element."""
    return 32 * warps_for(n) * BYTES_PER_THREAD // item_bytes


@triton.jit
def window(ptr, start, lanes):
    """Addresses of a block; the large offset is added to the pointer, the small ones stay int32."""
    return (ptr + start) + lanes


@triton.heuristics({"BLOCK": lambda args: block_for(args["n"], args["x_ptr"].element_size())})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; programs take the blocks in descending order, the partial one first."""
    number = tl.num_programs(axis=0) - 1 - tl.program_id(axis=0)
    start = number.to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    exists = start + lanes < n
    x = tl.load(window(x_ptr, start, lanes), mask=exists)
    y = tl.load(window(y_ptr, start, lanes), mask=exists)
    tl.store(window(out_ptr, start, lanes), x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, result, n, num_warps=warps_for(n))
    return result
