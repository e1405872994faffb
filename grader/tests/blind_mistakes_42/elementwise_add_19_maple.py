# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add`, `torch.add(x[covered:], y[covered:], out=out[covered:])` computes outside of a kernel with a function that is not permitted: POLICY for the whole file. The rest must be added in a kernel, with a mask or a second launch.
"""Add two vectors: whole blocks in the kernel, the few elements behind them apart."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
WARPS = 4


@triton.jit
def whole_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    BLOCK: tl.constexpr,
):
    """Program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1, all of which exist."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    index = first + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    y = tl.load(y_ptr + index)
    tl.store(out_ptr + index, x + y)


def _split(n: int):
    """(whole blocks, elements in them)"""
    blocks = n // BLOCK
    return blocks, blocks * BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks, covered = _split(n)
    if blocks > 0:
        whole_blocks_kernel[(blocks,)](x, y, out, BLOCK=BLOCK, num_warps=WARPS)
    if covered < n:
        # Less than one block: not worth a mask in every program.
        torch.add(x[covered:], y[covered:], out=out[covered:])
    return out
