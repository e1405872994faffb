# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, the two choices of tl.where(idx >= n, x + y, 0.0) are the wrong way round: every element that exists gets 0 (all n >= 1, all dtypes); it should be tl.where(idx < n, x + y, 0.0), or just x + y
"""Vector sum; lanes past the end look at the last element instead of at foreign memory."""

import torch
import triton
import triton.language as tl

LANES = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, LANES: tl.constexpr):
    """out[i] = x[i] + y[i] for the LANES elements of this program."""
    pid = tl.program_id(0).to(tl.int64)
    idx = pid * LANES + tl.arange(0, LANES)
    safe = tl.minimum(idx, n - 1)  # never past the last element
    x = tl.load(x_ptr + safe)
    y = tl.load(y_ptr + safe)
    total = tl.where(idx >= n, x + y, 0.0)
    tl.store(out_ptr + idx, total, mask=idx < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, LANES),)](x, y, out, n, LANES=LANES, num_warps=4)
    return out
