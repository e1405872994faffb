# labs/lab1_elementwise_add/elementwise_add.py | contract | in elementwise_add_kernel, the loads of the next block (x_next, y_next at offs + hop) have the mask of the current block (live), so the last round of each program reads past the end of x and y (every n >= 1); these values are never stored and the numbers are right, but the README says that lanes past the end must not be read; the mask should be offs + hop < n
"""Add two vectors; each program fetches its next block while it stores the present one."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; blocks pid, pid + programs, pid + 2 * programs, ..."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    hop = tl.num_programs(0).to(tl.int64) * BLOCK

    offs = first + tl.arange(0, BLOCK)
    live = offs < n
    x = tl.load(x_ptr + offs, mask=live)
    y = tl.load(y_ptr + offs, mask=live)
    for start in range(first, n, hop):
        x_next = tl.load(x_ptr + offs + hop, mask=live)
        y_next = tl.load(y_ptr + offs + hop, mask=live)
        tl.store(out_ptr + offs, x + y, mask=live)
        x = x_next
        y = y_next
        offs += hop
        live = offs < n


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = (min(PROGRAMS, triton.cdiv(n, BLOCK)),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
