# labs/lab1_elementwise_add/elementwise_add.py | right | right: a bounded number of programs, each of which walks over the vector in steps of the whole grid
"""Add two vectors with a fixed crew of programs."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
CREW = 1056  # 8 programs for each of 132 multiprocessors


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, blocks, BLOCK: tl.constexpr):
    """Program pid takes the blocks pid, pid + crew, pid + 2 * crew, ..."""
    pid = tl.program_id(axis=0)
    crew = tl.num_programs(axis=0)
    here = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for turn in range(pid, blocks, crew):
        valid = here < n
        a = tl.load(x_ptr + here, mask=valid)
        b = tl.load(y_ptr + here, mask=valid)
        tl.store(out_ptr + here, a + b, mask=valid)
        here += crew * BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    crew = min(blocks, CREW)
    if crew > 0:
        elementwise_add_kernel[(crew,)](x, y, result, n, blocks, BLOCK=BLOCK, num_warps=8)
    return result
