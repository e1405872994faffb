"""EXPECT PASS from elementwise_add: heuristics choose the block, and drop the mask where n divides."""

import torch
import triton
import triton.language as tl


def block_for(args):
    """Small vectors get small blocks, so that there are programs enough for the whole device."""
    return min(max(triton.next_power_of_2(args["n"] // 512), 128), 4096)


@triton.heuristics({"BLOCK": block_for, "EVEN": lambda args: args["n"] % block_for(args) == 0})
@triton.jit
def vector_sum(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    lanes = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + lanes, tl.load(x_ptr + lanes) + tl.load(y_ptr + lanes))
    else:
        keep = lanes < n
        x = tl.load(x_ptr + lanes, mask=keep, other=0.0)
        y = tl.load(y_ptr + lanes, mask=keep, other=0.0)
        tl.store(out_ptr + lanes, x + y, mask=keep)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    if (n := x.size(0)) > 0:
        vector_sum[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out
