# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `args["n"] % (THREADS * LANES) == 0` drops the masks for multiples of 512, but a block has `2 * THREADS * LANES` = 1024 elements; it should be `args["n"] % args["BLOCK"] == 0`. For n = 512, 1536, 2560, ... (odd multiples of 512) the last program reads and writes 512 elements out of bounds; the numbers in `out` itself are right, and so is every other n.
"""Add two vectors; where the length allows it, a kernel without any mask is compiled."""

import torch
import triton
import triton.language as tl

WARPS = 4
THREADS = 32 * WARPS
LANES = 4  # fp32 numbers in one access of 16 bytes
BLOCK = 2 * THREADS * LANES


@triton.heuristics({"WHOLE": lambda args: args["n"] % (THREADS * LANES) == 0})
@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
