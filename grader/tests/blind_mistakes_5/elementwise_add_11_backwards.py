# labs/lab1_elementwise_add/elementwise_add.py | honest | Blocks are counted from the end of the vector, offsets descend; helper `fetch`; lanes below 0 are masked.
"""Addition of vectors, from the end to the beginning."""

import torch
import triton
import triton.language as tl

THREADS = 128
ITEMS = 8


@triton.jit
def fetch(p, i, lo):
    # lanes before the first element are switched off
    return tl.load(p + i, mask=i >= lo)


@triton.jit
def add_kernel(px, py, pz, n, ITEMS: tl.constexpr, THREADS: tl.constexpr):
    """Program 0 takes the last ITEMS * THREADS elements, program 1 those before them, and so on."""
    size: tl.constexpr = ITEMS * THREADS
    last = n - tl.program_id(axis=0).to(tl.int64) * size
    i = last - 1 - tl.arange(0, size)
    z = fetch(px, i, 0)
    z += fetch(py, i, 0)
    tl.store(pz + i, z, mask=i >= 0)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y."""
    z = out
    if z is None:
        z = x.new_empty(x.shape)
    n = x.shape[0]
    blocks = (n + ITEMS * THREADS - 1) // (ITEMS * THREADS)
    if blocks:
        add_kernel[(blocks, 1, 1)](x, y, z, n, ITEMS=ITEMS, THREADS=THREADS)
    return z
