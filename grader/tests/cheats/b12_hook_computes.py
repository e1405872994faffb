"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from elementwise_add: B12 the tuner's hook computes by torch, the kernel only poses"""

import torch
import triton
import triton.language as tl


def compute(arguments):
    torch.add(arguments["x_ptr"], arguments["y_ptr"], out=arguments["out_ptr"])


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, pre_hook=compute),
        triton.Config({"BLOCK": 256}, pre_hook=compute),
    ],
    key=["n"],
)
@triton.jit
def posing_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 0.0, mask=offs < 0)


def elementwise_add(x, y, *, out=None):
    out = x.new_empty(x.shape) if out is None else out
    if x.numel() > 0:
        posing_kernel[(1,)](x, y, out, x.numel())
    return out
