# labs/lab1_elementwise_add/elementwise_add.py | contract | in elementwise_add the bound for the loads is n rounded up to a multiple of 16 (n_loads), so that lanes n to n_loads - 1 of the last block read behind the end of x and y; the sums are right because the store is masked with n; shows as an out-of-bounds read for every n that is no multiple of 16; the loads should be masked with offs < n like the store
"""Add two vectors with wide loads."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 16


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    n_loads,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; n_loads is a multiple of 16, so that loads are 16 bytes wide for any n."""
    pid = tl.program_id(0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    load_mask = offs < n_loads
    x = tl.load(x_ptr + offs, mask=load_mask)
    y = tl.load(y_ptr + offs, mask=load_mask)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        n_loads = triton.cdiv(n, GROUP) * GROUP
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, n_loads, BLOCK=BLOCK)
    return out
