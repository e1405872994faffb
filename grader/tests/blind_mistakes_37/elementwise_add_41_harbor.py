# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, `tl.reshape(tl.join(x, y), (2, BLOCK))` does not give one row per operand: tl.join puts the new axis last (BLOCK, 2), so the reshape keeps the order x0, y0, x1, y1, ... and the sum over axis 0 adds x[i] to x[i + 512] and y[i] to y[i + 512] of the same block (even lanes of out have sums of x, odd lanes sums of y; masked lanes count as 0, so n = 1 gives x[0], and n = 7 gives x0, y0, x1, y1, x2, y2, x3); wrong for every n > 0; it should be `tl.sum(tl.join(x, y), axis=1)` (or tl.trans in place of the reshape), or simply x + y
"""Vector addition: stack the two operands of a block, then reduce the stack."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Program pid owns out[pid * BLOCK : (pid + 1) * BLOCK]."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n

    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    operands = tl.reshape(tl.join(x, y), (2, BLOCK))
    tl.store(out_ptr + offs, tl.sum(operands, axis=0), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
