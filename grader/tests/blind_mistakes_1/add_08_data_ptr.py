# lab1/elementwise_add.py | error | launch: the kernel gets x.data_ptr(), y.data_ptr() and out.data_ptr() (Python integers, as in CUDA) instead of the tensors, so in the kernel x_ptr + offs is a block of integers and tl.load rejects it | "Pass `out` itself as the third pointer of the launch"; every n > 0 raises
"""Add two vectors: one thread block, one piece of the result."""

import torch
import triton
import triton.language as tl

THREADS = 256
PER_THREAD = 4


@triton.jit
def vec_add(x_ptr, y_ptr, out_ptr, n, CHUNK: tl.constexpr):
    blockIdx = tl.program_id(axis=0).to(tl.int64)
    i = blockIdx * CHUNK + tl.arange(0, CHUNK)
    xi = tl.load(x_ptr + i, mask=i < n)
    yi = tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, xi + yi, mask=i < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    chunk = THREADS * PER_THREAD
    blocks = (n + chunk - 1) // chunk
    if blocks > 0:
        vec_add[(blocks,)](x.data_ptr(), y.data_ptr(), out.data_ptr(), n, CHUNK=chunk, num_warps=THREADS // 32)
    return out
