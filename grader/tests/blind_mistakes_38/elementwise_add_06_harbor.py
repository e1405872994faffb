# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) the heuristic FULL of elementwise_add_kernel tests args["n"] % 16 == 0: where n is a multiple of 16 but not of BLOCK = 1024 (48, 256, 512, 1536) the last program reads and writes past the end without a mask; should be args["n"] % args["BLOCK"] == 0. (2) elementwise_add leaves with a bare return where n == 0 and so gives None; should return out (a new empty tensor if none is given)
"""Add two vectors, with a mask only where it is needed."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.heuristics({"FULL": lambda args: args["n"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, FULL: tl.constexpr):
    idx = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if FULL:
        # Plain accesses are the widest.
        left = tl.load(x_ptr + idx)
        right = tl.load(y_ptr + idx)
        tl.store(out_ptr + idx, left + right)
    else:
        live = idx < n
        left = tl.load(x_ptr + idx, mask=live)
        right = tl.load(y_ptr + idx, mask=live)
        tl.store(out_ptr + idx, left + right, mask=live)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; `out` takes the sum where it is given."""
    n = x.numel()
    if n == 0:
        return

    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=BLOCK)
    return out
