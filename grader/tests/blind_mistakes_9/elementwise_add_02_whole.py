# labs/lab1_elementwise_add/elementwise_add.py | corner | The heuristic `args["n"] % UNIT == 0` with UNIT = 16 chooses the branch without masks; it must be `args["n"] % BLOCK == 0`. For n that is a multiple of 16 and not of BLOCK the last program reads and writes past the end (out of bounds, numbers right); every other n is right.
"""x + y, with a path of its own for vectors that need no mask."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNIT = 16  # numbers side by side that the hardware moves together


@triton.heuristics({"WHOLE": lambda args: args["n"] % UNIT == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    here = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    # One pointer for each vector moves to the block; the lanes stay small numbers.
    x_ptr += here
    y_ptr += here
    out_ptr += here
    if WHOLE:
        tl.store(out_ptr + lane, tl.load(x_ptr + lane) + tl.load(y_ptr + lane))
    else:
        left = n - here
        ok = lane < left
        a = tl.load(x_ptr + lane, mask=ok, other=0.0)
        b = tl.load(y_ptr + lane, mask=ok, other=0.0)
        tl.store(out_ptr + lane, a + b, mask=ok)


def elementwise_add(x, y, *, out=None):
    """The sum of two contiguous vectors."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
