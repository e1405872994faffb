# labs/lab1_elementwise_add/elementwise_add.py | contract | right numbers but slow: in elementwise_add_kernel, `mine = start + tl.arange(0, LANES) * EACH` gives each lane a run of 16 neighbouring elements, so in every pass of the loop neighbouring lanes touch addresses 16 elements apart and no access serves many lanes (README: neighbouring lanes should touch neighbouring addresses, and the same bytes should move as fast as with torch.add); shows in the speed at n = 2^28; should be start + k * LANES + tl.arange(0, LANES), or one block without the loop
"""Add two vectors; a lane works on EACH elements, one after another."""

import torch
import triton
import triton.language as tl

LANES = 256
EACH = 16


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    start = tl.program_id(axis=0).to(tl.int64) * (LANES * EACH)
    mine = start + tl.arange(0, LANES) * EACH
    for k in range(EACH):
        at = mine + k
        valid = at < n
        x = tl.load(x_ptr + at, mask=valid)
        y = tl.load(y_ptr + at, mask=valid)
        tl.store(out_ptr + at, x + y, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, a new tensor unless `out` is given."""
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n != 0:
        elementwise_add_kernel[(triton.cdiv(n, LANES * EACH),)](x, y, result, n, LANES=LANES, EACH=EACH)
    return result
