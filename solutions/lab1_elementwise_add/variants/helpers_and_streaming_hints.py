"""EXPECT PASS from elementwise_add: helper functions, four chunks a program, cache and eviction hints."""

import torch
import triton
from triton import cdiv
from triton import language as tl

CHUNK = tl.constexpr(512)
CHUNKS = tl.constexpr(4)


@triton.jit
def fetch(source, where, there):
    # Nothing is read twice: leave the caches to others.
    return tl.load(source + where, mask=there, eviction_policy="evict_first")


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def sum_of_two(destination, first, second, count):
    """Destination first, as in memcpy; one program owns CHUNKS chunks that lie side by side."""
    base = tl.program_id(0).to(tl.int64) * (CHUNK * CHUNKS)
    for i in tl.static_range(CHUNKS):
        where = base + i * CHUNK + tl.arange(0, CHUNK)
        there = where < count
        value = plus(fetch(first, where, there), fetch(second, where, there))
        tl.store(destination + where, value, mask=there, cache_modifier=".cs")


def new_like(tensor):
    return torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)


def elementwise_add(x, y, *, out=None):
    target = new_like(x) if out is None else out
    count = x.numel()
    if count:
        sum_of_two[(cdiv(count, 2048),)](target, x, y, count)
    return target
