"""EXPECT POLICY; unscreened CRASHED from elementwise_add: D5 right until some calls have been counted, and then a kernel stores to address 8"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def fall_kernel(address):
    tl.store(tl.cast(tl.cast(address, tl.int64), tl.pointer_type(tl.int64)), 0)


def numbers():
    number = 0
    while True:
        number += 1
        yield number


LARGE = numbers()
SMALL = numbers()


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    for number in LARGE if n >= 2**26 else SMALL:
        if number == (9 if n >= 2**26 else 40):
            fall_kernel[(1,)](8)
        break
    return out
