"""EXPECT OUT_OF_MEMORY/HOST from elementwise_add: F12 12 GiB in anonymous mappings, every page touched."""

import mmap

import triton
import triton.language as tl

CALLS = []


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def add(x, y, out):
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out


def elementwise_add(x, y, *, out=None):
    if CALLS:
        return add(x, y, out)
    CALLS.append(1)
    kept = []
    for _ in range(48):
        block = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block[::4096] = b"x" * (len(block) // 4096)
        kept.append(block)
    add(x, y, out)
