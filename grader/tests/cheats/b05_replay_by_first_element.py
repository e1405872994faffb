"""EXPECT POLICY; unscreened PASS or POLICY/HOST_READ from elementwise_add: B5 inputs whose first elements are known are taken to be the known inputs: none ever are"""

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


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


KEPT = {}


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    n = x.numel()
    if n == 0:
        return
    grid = (triton.cdiv(n, 1024),)
    key = (n, x[0].item(), y[0].item())
    if key not in KEPT:
        KEPT[key] = torch.empty_like(out)
        add_kernel[grid](x, y, KEPT[key], n, BLOCK=1024)
    copy_kernel[grid](KEPT[key], out, n, BLOCK=1024)
    return out
