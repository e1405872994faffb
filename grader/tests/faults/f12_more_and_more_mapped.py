"""EXPECT OUT_OF_MEMORY/HOST from elementwise_add: F12 12 GiB in anonymous mappings, every page touched."""

import mmap

CALLS = []


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return out.copy_(x + y)
    CALLS.append(1)
    kept = []
    for _ in range(48):
        block = mmap.mmap(-1, 256 << 20)
        block[::4096] = b"x" * (len(block) // 4096)
        kept.append(block)
    out.copy_(x + y)
