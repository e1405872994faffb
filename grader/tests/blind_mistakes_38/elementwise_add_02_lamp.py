# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel joins the sums in the wrong order: tl.join(second, first) puts the sum of element 2i + 1 at 2i and the sum of 2i at 2i + 1, so neighbours are swapped in every case with n > 0 (with odd n, so also n = 1, the last element becomes 0.0, the value of the masked lane); should be tl.join(first, second)
"""out = x + y, with pairs of neighbouring elements."""

import torch
import triton
import triton.language as tl

PAIRS = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, PAIRS: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)

    # Each lane adds two neighbours.
    even = 2 * (pid * PAIRS + tl.arange(0, PAIRS))
    odd = even + 1
    has_even = even < n
    has_odd = odd < n

    first = tl.load(x_ptr + even, mask=has_even, other=0.0) + tl.load(y_ptr + even, mask=has_even, other=0.0)
    second = tl.load(x_ptr + odd, mask=has_odd, other=0.0) + tl.load(y_ptr + odd, mask=has_odd, other=0.0)

    # One wide store of all 2 * PAIRS sums.
    sums = tl.reshape(tl.join(second, first), (2 * PAIRS,))
    dest = pid * (2 * PAIRS) + tl.arange(0, 2 * PAIRS)
    tl.store(out_ptr + dest, sums, mask=dest < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    grid = (triton.cdiv(n, 2 * PAIRS),)
    elementwise_add_kernel[grid](x, y, out, n, PAIRS=PAIRS)
    return out
