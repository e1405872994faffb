# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel the last program masks with lane < n % BLOCK. Where n is a multiple of BLOCK (1024, 2048, 4096, 8192, 2^28, ...), n % BLOCK is 0, so the last program stores nothing and the last 1024 elements stay unwritten (all of them at n = 1024); all other n are right. It should be lane < n - first.
"""Add two vectors: only the last program needs a mask."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    first = pid.to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)

    # From here on the three pointers point to the block of this program.
    x_ptr += first
    y_ptr += first
    out_ptr += first

    if pid + 1 < tl.num_programs(axis=0):
        total = tl.load(x_ptr + lane) + tl.load(y_ptr + lane)
        tl.store(out_ptr + lane, total)
    else:
        live = lane < n % BLOCK
        total = tl.load(x_ptr + lane, mask=live) + tl.load(y_ptr + lane, mask=live)
        tl.store(out_ptr + lane, total, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
