# labs/lab1_elementwise_add/elementwise_add.py | honest | two launches: whole blocks without a mask in two unrolled halves, then one masked program for the rest, which gets views of the ends of the three vectors.
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def load_pair(a, b, offs):
    return tl.load(a + offs), tl.load(b + offs)


@triton.jit
def whole_blocks(a, b, c, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * (2 * BLOCK)
    left = base + tl.arange(0, BLOCK)
    right = left + BLOCK
    a0, b0 = load_pair(a, b, left)
    a1, b1 = load_pair(a, b, right)
    tl.store(c + left, a0 + b0)
    tl.store(c + right, a1 + b1)


@triton.jit
def remainder(a, b, c, rest, BLOCK: tl.constexpr):
    lane = tl.arange(0, 2 * BLOCK)
    here = lane < rest
    total = tl.load(a + lane, mask=here) + tl.load(b + lane, mask=here)
    tl.store(c + lane, total, mask=here)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y; full double blocks first, the rest afterwards"""
    if out is None:
        out = torch.empty_like(x)
    blocks, rest = divmod(x.numel(), 2 * BLOCK)
    done = blocks * 2 * BLOCK
    if blocks:
        whole_blocks[(blocks,)](x, y, out, BLOCK=BLOCK)
    if rest:
        remainder[(1,)](x[done:], y[done:], out[done:], rest, BLOCK=BLOCK)
    return out
