# labs/lab1_elementwise_add/elementwise_add.py | contract | in elementwise_add, `limit` is n rounded up to a multiple of 16, and elementwise_add_kernel masks its two loads with `offs < limit`: up to 15 elements past the end of x and of y are read (the lanes from n to limit - 1), although a masked-out lane must neither read nor write; they are never stored, so all numbers are right; shows in every case where n is no multiple of 16 (1, 7, 127, 129, 1009, 4099, 65537, 2^20 + 3), as an access out of bounds; both loads should be masked with `offs < n`, as the store is
"""Vector addition with wide accesses: one program adds one block."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 16


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    limit,  # n in whole groups
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    loaded = offs < limit
    x = tl.load(x_ptr + offs, mask=loaded)
    y = tl.load(y_ptr + offs, mask=loaded)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Adds two contiguous vectors of one dtype, which may be empty."""
    assert x.numel() == y.numel(), f"{x.numel()} and {y.numel()} elements"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks:
        limit = triton.cdiv(n, GROUP) * GROUP
        elementwise_add_kernel[(blocks,)](x, y, out, n, limit, BLOCK=BLOCK)
    return out
