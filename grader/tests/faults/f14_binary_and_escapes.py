"""EXPECT PASS from elementwise_add: F14 bytes that are no text, and escape sequences."""

import os
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    os.write(1, bytes(range(256)) + b"\x1b[2J\x1b]0;title\x07\xe2\x80\xae\xff\xfe")
    os.write(2, b"\x1b[?1049h\x00\r\x08")
    n = x.numel()
    if n:
        add_kernel[(triton.cdiv(n, 8192),)](x, y, out, n, BLOCK=8192)
    return out
