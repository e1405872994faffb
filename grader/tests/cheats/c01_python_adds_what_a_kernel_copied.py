"""EXPECT POLICY; unscreened POLICY/HOST_READ from elementwise_add on a CPU: C1 a kernel copies the inputs, Python adds the copies, a kernel carries the sums"""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(from_ptr, to_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + offs, tl.load(from_ptr + offs, mask=offs < n), mask=offs < n)


def copied(values, out):
    n = values.numel()
    if n > 0:
        copy_kernel[(triton.cdiv(n, 1024),)](values, out, n, BLOCK=1024)
    return out


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    left, right = copied(x, torch.empty_like(x)), copied(y, torch.empty_like(y))
    sums = torch.Tensor([float(a) + float(b) for a, b in zip(left, right)]).to(x.dtype).to(x.device)
    return copied(sums, out)
